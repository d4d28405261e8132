package main

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/outbox"
)

// scrapeTimeout bounds what a scrape asks of Postgres.
const scrapeTimeout = 2 * time.Second

func newAccepted() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "orderfanout_orders_accepted_total",
		Help: "Orders placed by this process. A replay of an earlier answer does not count.",
	})
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	outboxWaiting     = describe("orderfanout_outbox_waiting", "Events in the outbox that are not published yet; at 10,000 there may be more.")
	outboxOldest      = describe("orderfanout_outbox_oldest_seconds", "Age of the event that is first in line, 0 where none waits.")
	outboxPublished   = describe("orderfanout_outbox_published_total", "Events published by this process.")
	outboxRepublished = describe("orderfanout_outbox_republished_total", "Events published again because Redis had lost its tail.")
	outboxParked      = describe("orderfanout_outbox_parked", "Events that are set aside because Redis refuses them while it takes others.")
	outboxBrokerUp    = describe("orderfanout_outbox_broker_up", "1 where Redis took what the relay last asked of it, 0 otherwise. Orders are taken all the same.")
	trimBlocked       = describe("orderfanout_trim_blocked", "1 where the group keeps entries that are due from being trimmed: it has not acknowledged them, or is missing.", "group")
	trimUnknown       = describe("orderfanout_trim_unknown_groups", "Groups of the stream that nobody configured.")
	trimRemoved       = describe("orderfanout_trim_removed_total", "Entries trimmed from the stream by this process.")
)

// delivery is the collector for what the service does besides its API: outbox, relay and trimming.
type delivery struct {
	pool    *pgxpool.Pool
	relay   *outbox.Relay
	trimmer *redisstream.Trimmer
	log     *slog.Logger
	quiet   calm
}

// Describe implements prometheus.Collector.
func (d *delivery) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{outboxWaiting, outboxOldest, outboxPublished, outboxRepublished, outboxParked,
		outboxBrokerUp, trimBlocked, trimUnknown, trimRemoved} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector. Where Postgres is away the outbox has no figures.
func (d *delivery) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	counter := func(desc *prometheus.Desc, v int64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v))
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	if backlog, err := outbox.Waiting(ctx, d.pool); err == nil {
		gauge(outboxWaiting, float64(backlog.Rows))
		gauge(outboxOldest, backlog.Oldest.Seconds())
	} else if d.quiet.due() {
		d.log.Warn("no figures of the outbox", "error", err.Error())
	}
	relay := d.relay.Stats()
	counter(outboxPublished, relay.Published)
	counter(outboxRepublished, relay.Republished)
	gauge(outboxParked, float64(relay.Parked))
	gauge(outboxBrokerUp, one(d.relay.CheckBroker() == nil))
	trim := d.trimmer.Status()
	for _, group := range groups {
		gauge(trimBlocked, one(slices.Contains(trim.Blocked, group)), group)
	}
	gauge(trimUnknown, float64(len(trim.Unknown)))
	counter(trimRemoved, trim.Removed)
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
