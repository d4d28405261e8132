package redisstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
)

// memoryMost is the part of maxmemory at which publishing stops: the rest is for consumers, whose markers and dead
// letters are writes too.
const memoryMost = 0.8

// PublisherConfig says where a [Publisher] appends and when it refuses.
type PublisherConfig struct {
	// Stream is the key of the stream. Required.
	Stream string
	// MaxLen: from twice this length on, Publish returns [broker.ErrFull]. Default 1,000,000, at least 1.
	MaxLen int64
}

// Publisher appends to a stream. It is a [broker.Publisher]. It never trims, since XADD with MAXLEN cuts entries that
// nobody has read, and never repeats a write by itself.
type Publisher struct {
	cfg    PublisherConfig
	opts   *redis.Options
	client atomic.Pointer[redis.Client]
	asked  atomic.Int64 // until when (uptime) there is room
}

// NewPublisher returns a publisher with connections of its own, made with opts when it first publishes. Close it after
// use.
func NewPublisher(opts *redis.Options, cfg PublisherConfig) (*Publisher, error) {
	or(&cfg.MaxLen, 1_000_000)
	switch {
	case opts == nil:
		return nil, errors.New("redisstream publisher: the options are nil")
	case cfg.Stream == "":
		return nil, errors.New("redisstream publisher: Stream is empty")
	case cfg.MaxLen < 1:
		return nil, fmt.Errorf("redisstream publisher: MaxLen %d is less than 1", cfg.MaxLen)
	}
	own := *opts
	own.Protocol = 2
	own.MaxRetries = -1 // a repeated XADD is a second entry
	own.PoolSize = 2
	own.DialerRetries = 1
	own.DialTimeout, own.ReadTimeout, own.WriteTimeout = 2*time.Second, answerTime, answerTime
	own.ContextTimeoutEnabled = true
	p := &Publisher{cfg: cfg, opts: &own}
	p.client.Store(redis.NewClient(&own))
	return p, nil
}

// Close closes the connections.
func (p *Publisher) Close() error { return p.client.Load().Close() }

// leave gives up the connections where the server refused a transaction. One that was demoted does so for ever on those that it has, and go-redis
// keeps them, while the address may lead to another server by now.
func (p *Publisher) leave(client *redis.Client, err error) {
	if err == nil || !strings.HasPrefix(err.Error(), "EXECABORT") {
		return
	}
	if fresh := redis.NewClient(p.opts); p.client.CompareAndSwap(client, fresh) {
		_ = client.Close()
	} else {
		_ = fresh.Close()
	}
}

// Publish implements [broker.Publisher]: one round trip for all events, in one transaction
// (https://redis.io/docs/latest/develop/using-commands/transactions/). The transaction also asks the server who it is
// and where the stream stood, so that the comparison with known is about the very server that took the events. It
// returns [broker.ErrFull] where the stream has reached twice MaxLen or 80 % of maxmemory is used; that is asked at most
// every 100 ms.
func (p *Publisher) Publish(ctx context.Context, events []broker.Event, known broker.Position) (broker.Receipt, error) {
	failed := func(err error) (broker.Receipt, error) {
		return broker.Receipt{}, fmt.Errorf("publish %d events to %s: %w", len(events), p.cfg.Stream, err)
	}
	for i := range events {
		if err := events[i].Validate(); err != nil {
			return failed(fmt.Errorf("event %d (%q): %w", i+1, events[i].ID, err))
		}
	}
	if len(events) > 0 {
		if err := p.room(ctx); err != nil {
			return failed(err)
		}
	}
	client := p.client.Load()
	pipe := client.TxPipeline()
	server := pipe.Do(ctx, "INFO", "server")
	before := pipe.Do(ctx, "XINFO", "STREAM", p.cfg.Stream)
	adds := make([]*redis.Cmd, len(events))
	stream := any(p.cfg.Stream)
	for i := range events {
		adds[i] = pipe.Do(ctx, xadd(stream, &events[i])...)
	}
	// XINFO fails where there is no stream yet, so the commands are looked at one by one. Where the connection could not be made, with a
	// wrong password for instance, they have neither a value nor an error.
	_, err := pipe.Exec(ctx)
	p.leave(client, err)
	if server.Val() == nil && server.Err() == nil {
		return failed(err)
	}
	info, err := server.Text()
	if err != nil {
		return failed(err)
	}
	receipt := broker.Receipt{EntryIDs: make([]string, len(events))}
	for i, add := range adds {
		if receipt.EntryIDs[i], err = add.Text(); err != nil {
			return failed(err)
		}
	}
	last, err := lastGenerated(before)
	if err != nil {
		return failed(err)
	}
	receipt.Lost = known.Last != "" && idLess(last, known.Last)
	if len(events) > 0 {
		last = receipt.EntryIDs[len(events)-1]
	}
	receipt.Position = broker.Position{Server: infoField(info, "run_id"), Last: last}
	receipt.Lost = receipt.Lost || known.Server != "" && known.Server != receipt.Position.Server
	return receipt, nil
}

// room returns broker.ErrFull where nothing must be added.
func (p *Publisher) room(ctx context.Context) error {
	now := time.Now()
	if uptime(now) < p.asked.Load() {
		return nil
	}
	pipe := p.client.Load().Pipeline()
	length := pipe.XLen(ctx, p.cfg.Stream)
	memory := pipe.Info(ctx, "memory")
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("is there room: %w", err)
	}
	if n := length.Val(); n/2 >= p.cfg.MaxLen {
		return fmt.Errorf("%w: it has %d entries", broker.ErrFull, n)
	}
	info := memory.Val()
	used, _ := strconv.ParseFloat(infoField(info, "used_memory"), 64)
	most, _ := strconv.ParseFloat(infoField(info, "maxmemory"), 64)
	if most > 0 && used >= most*memoryMost {
		return fmt.Errorf("%w: %.0f of %.0f bytes of memory are used", broker.ErrFull, used, most)
	}
	p.asked.Store(uptime(now.Add(100 * time.Millisecond)))
	return nil
}

// infoField returns a field of an INFO reply.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(line, ":"); ok && key == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// lastGenerated returns the last id that the stream had given out, "0-0" where there was none.
func lastGenerated(xinfo *redis.Cmd) (string, error) {
	fields, err := xinfo.Slice()
	if err != nil && strings.Contains(err.Error(), "no such key") {
		return "0-0", nil
	}
	if err != nil {
		return "", err
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if name, _ := fields[i].(string); name == "last-generated-id" {
			id, _ := fields[i+1].(string)
			return id, nil
		}
	}
	return "", errReply
}

// idLess compares two entry ids, milliseconds-sequence
// (https://redis.io/docs/latest/develop/data-types/streams/#entry-ids).
func idLess(a, b string) bool {
	aMs, aSeq := splitID(a)
	bMs, bSeq := splitID(b)
	return aMs < bMs || aMs == bMs && aSeq < bSeq
}

func splitID(id string) (ms, seq uint64) {
	left, right, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(left, 10, 64)
	seq, _ = strconv.ParseUint(right, 10, 64)
	return ms, seq
}
