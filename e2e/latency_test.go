package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkOrderToCredited posts orders at 200 a second from 16 clients and reports how long after the start of its request
// each was credited: the time of the line that bonus logs after its commit. Give the number of orders:
//
//	go test -run '^$' -bench OrderToCredited -benchtime 4000x ./e2e
func BenchmarkOrderToCredited(b *testing.B) {
	const rate, clients = 200, 16
	s := newSystem(b)
	var slowest time.Duration // to be ready
	for _, service := range []string{"orders", "bonus", "mailer", "analytics"} {
		in := s.run(service, "one")
		slowest = max(slowest, time.Since(in.started))
	}
	orders, bonus := s.instances[0], s.instances[1]
	for range 20 { // connections, caches
		s.mustPost(orders, "warm", 1)
	}
	s.eventually("all is settled", s.settled)

	var mu sync.Mutex
	posted := make(map[string]time.Time, b.N)
	due := make(chan time.Time)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for range due {
				began := time.Now()
				o, _, err := s.post(orders, fmt.Sprint("c-", c), 1)
				if err != nil {
					b.Error(err)
					continue
				}
				mu.Lock()
				posted[o.ID] = began
				mu.Unlock()
			}
		})
	}
	b.ResetTimer()
	tick := time.NewTicker(time.Second / rate)
	for range b.N {
		due <- <-tick.C
	}
	tick.Stop()
	close(due)
	wg.Wait()
	s.eventually("all is settled", s.settled)
	b.StopTimer()

	var took []time.Duration
	for line := range strings.Lines(bonus.log.String()) {
		var l struct {
			Time    time.Time `json:"time"`
			Outcome string    `json:"outcome"`
			OrderID string    `json:"order_id"`
		}
		if json.Unmarshal([]byte(line), &l) != nil || l.Outcome != "done" {
			continue
		}
		if began, ok := posted[l.OrderID]; ok {
			took = append(took, l.Time.Sub(began))
		}
	}
	if len(took) != b.N {
		b.Fatalf("%d of %d orders credited", len(took), b.N)
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(ms(took[len(took)-1]), "max-ms")
	b.ReportMetric(ms(slowest), "ready-ms")
}
