package outbox_test

import (
	"testing"
	"time"

	"example.com/orderfanout/outbox"
)

// BenchmarkRelay drains a backlog of events of half a kilobyte.
func BenchmarkRelay(b *testing.B) {
	w := newWorld(b)
	w.exec(b, insertRows, "e", b.N, time.Duration(0), false)
	w.exec(b, `update outbox set data = convert_to(repeat('x', 500), 'UTF8')`)
	w.exec(b, `vacuum analyze outbox`)
	b.ResetTimer()
	relay := w.start(b, never)
	waitUntil(b, "all is published", func() bool { return relay.Stats().Published == int64(b.N) })
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkQuiet is one event at a time: from its commit until it is in the stream and marked.
func BenchmarkQuiet(b *testing.B) {
	w := newWorld(b)
	relay := w.start(b, outbox.RelayConfig{})
	ids := eventIDs(0, b.N)
	b.ResetTimer()
	for i, id := range ids {
		w.add(b, id)
		relay.Wake()
		for relay.Stats().Published <= int64(i) {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// BenchmarkLoss puts a whole window of published rows back.
func BenchmarkLoss(b *testing.B) {
	w := newWorld(b)
	relay := w.start(b, outbox.RelayConfig{Sweep: 50 * time.Millisecond, RepublishWindow: time.Hour})
	w.add(b, "first")
	w.waitPublished(b)
	w.exec(b, insertRows, "e", b.N, time.Duration(0), true)
	b.ResetTimer()
	if err := w.client.FlushAll(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	waitUntil(b, "the window waits again", func() bool { return relay.Stats().Republished > 0 })
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
