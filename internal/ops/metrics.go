package ops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
)

// seconds are the buckets of all histograms: from a local round trip to HANDLER_TIMEOUT.
var seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

func requestMetrics(reg *prometheus.Registry) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "orderfanout_http_request_seconds",
		Help:    "Time to answer a request, by method, route and status.",
		Buckets: seconds,
	}, []string{"method", "route", "status"})
	reg.MustRegister(h)
	return h
}

// Observe adds to cfg, whose Group and handler are set, the Service's logger, the consumer's metrics and a span around
// its handler: a child of the event's trace for a single handler, one span with a link to each event's for a batch. A
// Service observes one consumer.
func (s *Service) Observe(cfg *redisstream.Config) {
	cfg.Logger = s.Log
	if cfg.Handle != nil {
		cfg.Handle = s.traceHandler(cfg.Stream, cfg.Group, cfg.Handle)
	}
	if cfg.HandleBatch != nil {
		cfg.HandleBatch = s.traceBatch(cfg.Stream, cfg.Group, cfg.HandleBatch)
	}

	labels := prometheus.Labels{"group": cfg.Group}
	handled := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name:        "orderfanout_entries_total",
		Help:        "Deliveries that ended, by group and outcome (done, duplicate, retry, deferred, dead, skipped, lost).",
		ConstLabels: labels,
	}, []string{"outcome"})
	redelivered := prometheus.NewCounter(prometheus.CounterOpts{
		Name:        "orderfanout_redeliveries_total",
		Help:        "Deliveries that ended and were not the entry's first, by group.",
		ConstLabels: labels,
	})
	took := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:        "orderfanout_handler_seconds",
		Help:        "Time that a handler ran for a delivery, by group. Each delivery of a batch counts with the batch's time.",
		ConstLabels: labels,
		Buckets:     seconds,
	})
	s.Metrics.MustRegister(handled, redelivered, took)
	// The outcomes are looked up once, and stand at zero from the start, so that a rate sees the first one.
	byOutcome := make(map[broker.Outcome]prometheus.Counter)
	for _, o := range []broker.Outcome{broker.Done, broker.Duplicate, broker.Retried, broker.Deferred, broker.Dead, broker.Skipped, broker.Lost} {
		byOutcome[o] = handled.WithLabelValues(string(o))
	}
	cfg.Observe = func(d *broker.Delivery, outcome broker.Outcome, ran time.Duration) {
		if c, ok := byOutcome[outcome]; ok {
			c.Inc()
		}
		if d.Delivery > 1 {
			redelivered.Inc()
		}
		if ran > 0 {
			took.Observe(ran.Seconds())
		}
	}
}
