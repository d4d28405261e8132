package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/smtpsink"
)

// bonus: the bonus service beside a loop that credits as many with one statement and does nothing else.
func bonus() work {
	return work{
		name: "bonus", unit: "credits/s",
		contenders: []contender{
			{name: "ours, the service", settings: "its defaults", n: 200_000,
				services: []string{"bonus"}, prepare: fillStream, run: serviceConsume("bonus"), verify: wantCredits},
			barePgxBonus(100), barePgxBonus(500),
			watermillBonus(1), watermillBonus(16), asynqBonus(1), asynqBonus(16), riverBonus(1), riverBonus(16),
		},
		goals: []goal{
			{who: "ours, the service", against: barePgxBonus(100).name, least: 0.9},
			{who: "ours, the service", against: bestPeer, least: 15},
		},
	}
}

// analytics: the analytics service.
func analytics() work {
	return work{
		name: "analytics", unit: "events/s",
		contenders: []contender{
			{name: "ours, the service", settings: "its defaults", n: 200_000,
				services: []string{"analytics"}, prepare: fillStream, run: serviceConsume("analytics"), verify: wantCounted},
			{name: "bare go-redis, pipelined", settings: "reads and acknowledges the same entries, and counts nothing", n: 200_000,
				prepare: fillStream, run: bareConsume("bonus"), verify: wantDone("bonus")},
		},
		goals: []goal{{who: "ours, the service", against: "bare go-redis, pipelined", least: 0.5}},
	}
}

// mailer: the mailer service with a mail server that takes everything.
func mailer() work {
	return work{
		name: "mailer", unit: "mails/s",
		contenders: []contender{
			{name: "ours, the service", settings: "its defaults; the mail server in the same machine keeps nothing", n: 10_000,
				services: []string{"mailer"}, prepare: fillStream, run: mailerConsume, verify: wantDone("mailer")},
		},
		goals: []goal{{who: "ours, the service", against: "", least: 2000}},
	}
}

func mailerConsume(ctx context.Context, c *child) error {
	sink, err := smtpsink.Start(smtpsink.Config{OnData: func(int, string, []string, []byte) error { return nil }})
	if err != nil {
		return err
	}
	defer sink.Close()
	return serviceConsume("mailer", "SMTP_URL="+sink.URL())(ctx, c)
}

// wantCounted wants the entries done and their orders counted.
func wantCounted(ctx context.Context, s *servers, n int) error {
	if err := wantSums(ctx, s, n); err != nil {
		return err
	}
	return wantDone("analytics")(ctx, s, n)
}

// wantSums holds the figures of analytics to what the orders come to.
func wantSums(ctx context.Context, s *servers, n int) error {
	client := redis.NewClient(s.options())
	defer client.Close()
	orders, err := client.HGet(ctx, "analytics:{stats}:totals", "orders").Int()
	if err != nil {
		return err
	}
	if orders != n {
		return fmt.Errorf("%d orders counted, want %d", orders, n)
	}
	return nil
}
