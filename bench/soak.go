package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/smtpsink"
)

// idleFor is how long the services do nothing before their memory is called idle.
const idleFor = 30 * time.Second

// soak runs all four services under all the load that the machine can make, for that long, and reports their memory. At the end each order
// must be done once by each of them.
func soak(ctx context.Context, s *servers, howLong time.Duration, to io.Writer) error {
	if err := s.clear(ctx); err != nil {
		return err
	}
	client := redis.NewClient(s.options())
	defer client.Close()
	if err := client.ConfigSet(ctx, "auto-aof-rewrite-percentage", "100").Err(); err != nil { // as it is by default: this is no short run
		return err
	}
	sink, err := smtpsink.Start(smtpsink.Config{OnData: func(int, string, []string, []byte) error { return nil }})
	if err != nil {
		return err
	}
	defer sink.Close()
	c := &child{servers: s}
	residents := make([]*resident, len(allServices))
	for i, name := range allServices {
		service, err := c.service(ctx, name, "SMTP_URL="+sink.URL())
		if err != nil {
			return err
		}
		defer func() { _ = service.process.Signal(syscall.SIGKILL) }() // where the end in order below was not reached
		residents[i] = &resident{running: service}
	}
	watch, unwatch := context.WithCancel(ctx)
	defer unwatch()
	watched := make(chan struct{})
	go func() { defer close(watched); sample(watch, residents) }()
	if err := pause(ctx, idleFor); err != nil {
		return err
	}
	idle := time.Now()
	placed, err := hammer(ctx, residents[0].url, howLong)
	if err != nil {
		return err
	}
	busy := time.Now()
	if err := awaitGroups(ctx, s, placed, allServices[1:]); err != nil {
		return err
	}
	unwatch()
	<-watched
	for _, r := range residents {
		err = errors.Join(err, r.stop())
	}
	if err = errors.Join(err, wantOrderRows(ctx, s, placed), wantCredits(ctx, s, placed), wantSums(ctx, s, placed)); err != nil {
		return err
	}
	fmt.Fprintf(to, "\nmemory, MB resident: %s with %d clients, %s orders (%s a second), all done once\n", howLong, httpClients, thousands(float64(placed)),
		thousands(float64(placed)/howLong.Seconds()))
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tidle\tfirst minute of load\tmiddle one\tlast one\tanonymous: first\tmiddle\tlast\tlargest of all\tready after ms\t")
	minute := min(time.Minute, howLong)
	loaded := []time.Time{idle, idle.Add((howLong - minute) / 2), busy.Add(-minute)}
	for _, r := range residents {
		fmt.Fprintf(t, "%s\t%.1f\t", r.name, median(r.between(r.all, idle.Add(-idleFor/2), idle)))
		for _, figures := range [][]float64{r.all, r.anonymous} {
			for _, from := range loaded {
				fmt.Fprintf(t, "%.1f\t", median(r.between(figures, from, from.Add(minute))))
			}
		}
		fmt.Fprintf(t, "%.1f\t%d\t\n", slices.Max(r.all), r.ready.Milliseconds())
	}
	return t.Flush()
}

// resident is the memory of one service, in MB, a figure a second, and when each was taken. What is not anonymous is of the program's
// file, as far as it has been touched.
type resident struct {
	*running
	all, anonymous []float64
	at             []time.Time
}

func sample(ctx context.Context, residents []*resident) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, r := range residents {
				pid := r.process.Pid()
				r.all, r.anonymous = append(r.all, float64(memory(pid, memoryNow))/1e6), append(r.anonymous, float64(memory(pid, memoryAnonymous))/1e6)
				r.at = append(r.at, now)
			}
		}
	}
}

// between are those of the figures that were taken between two times.
func (r *resident) between(figures []float64, from, to time.Time) []float64 {
	var some []float64
	for i, at := range r.at {
		if !at.Before(from) && at.Before(to) {
			some = append(some, figures[i])
		}
	}
	return some
}

// hammer places orders with httpClients clients, one after the other each, and returns how many were placed.
func hammer(ctx context.Context, url string, howLong time.Duration) (placed int, err error) {
	var next atomic.Int64
	end := time.Now().Add(howLong)
	errs := make([]error, httpClients)
	var wg sync.WaitGroup
	for i := range errs {
		conn, err := dialHTTP(strings.TrimPrefix(url, "http://"))
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		wg.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil && errs[i] == nil {
				n := next.Add(1)
				errs[i] = conn.post(int(n))
				if i == 0 {
					progress("%s left, %s orders", time.Until(end).Round(time.Second), thousands(float64(n)))
				}
			}
		})
	}
	wg.Wait()
	return int(next.Load()), errors.Join(append(errs, ctx.Err())...)
}

// awaitGroups waits until each of the groups has read and acknowledged n entries.
func awaitGroups(ctx context.Context, s *servers, n int, groups []string) error {
	client := redis.NewClient(s.options())
	defer client.Close()
	for _, group := range groups {
		for {
			done, err := doneIn(ctx, client, group)
			if err != nil {
				return err
			}
			if done == n {
				break
			}
			progress("%s is through with %s of %s", group, thousands(float64(done)), thousands(float64(n)))
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
