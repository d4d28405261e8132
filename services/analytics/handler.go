package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/internal/crash"
)

// One run of the script takes at most this much, so that Redis, which does nothing else meanwhile, is back soon. The first
// also keeps sums far below 2^63, and the script's calls below Lua's limit on arguments.
const (
	maxSales = 1_000
	maxItems = 10_000
)

var (
	errLate     = errors.New("older than PROCESSED_RETENTION: nobody remembers whether it was counted")
	errOverflow = errors.New("a sum would pass the largest number that can be kept exactly")
)

// store keeps the sums.
type store struct {
	client    *redis.Client
	retention time.Duration // of markers, after their day
	log       *slog.Logger
}

// handle is a [broker.BatchHandler].
func (s *store) handle(ctx context.Context, ds []*broker.Delivery) error {
	var sales []*sale
	byID := make(map[string]*sale, len(ds))
	for _, d := range ds {
		one, err := newSale(d)
		if err != nil {
			d.Reject(broker.Permanent(err))
			continue
		}
		if first := byID[one.id]; first != nil {
			first.deliveries = append(first.deliveries, d)
			continue
		}
		byID[one.id] = one
		sales = append(sales, one)
	}
	for len(sales) > 0 {
		n := portion(sales)
		if err := s.count(ctx, sales[:n]); err != nil {
			return err
		}
		sales = sales[n:]
	}
	return nil
}

// portion says how many of the sales go into one run of the script: at least one.
func portion(sales []*sale) int {
	items := 0
	for i, one := range sales {
		items += len(one.order.Items)
		if i == maxSales || i > 0 && items > maxItems {
			return i
		}
	}
	return len(sales)
}

// count adds those sales that are new, all in one run of the script, and tells the others' deliveries what they are. The script
// writes only if all that it is given are new; so where some are not, it is run again with the rest.
func (s *store) count(ctx context.Context, sales []*sale) error {
	for len(sales) > 0 {
		b := newBatch(sales, s.retention)
		crash.At(crash.SumsAdding)
		reply, err := apply.Run(ctx, s.client, b.keys, b.args...).StringSlice()
		if err != nil {
			// What Redis refuses here it would refuse for any order: no entry is to blame.
			return broker.Unavailable(fmt.Errorf("count %d events from %s: %w", len(sales), sales[0].id, err))
		}
		switch {
		case len(reply) == 1 && reply[0] == "ok":
			crash.At(crash.SumsAdded)
			for _, one := range b.sales {
				for _, d := range one.deliveries[1:] {
					d.Duplicate()
				}
			}
			return nil
		case len(reply) == 2 && reply[0] == "overflow":
			err := fmt.Errorf("count %d events from %s: %s: %w", len(sales), sales[0].id, reply[1], errOverflow)
			if len(sales) == 1 {
				return broker.Permanent(err)
			}
			return err // each is run alone now, and one that fits is counted
		case len(reply) == 2 && reply[0] == "known" && len(reply[1]) == len(b.sales):
			sales = b.unknown(reply[1])
		default:
			return fmt.Errorf("count %d events from %s: reply %.100q", len(sales), sales[0].id, reply)
		}
	}
	return nil
}
