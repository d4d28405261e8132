package books

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
)

// tailNote says what a lost tail is.
const tailNote = "Redis is not where the relay left it, and may have lost what came last. The relay publishes the last rows again"

// tail is where Redis is, beside where the relay left it. Where these disagree Redis may have lost what came last, and
// the relay, which looks at least once a second, has not noticed yet: rows that were published within the republish window
// are marked as published, and perhaps nowhere. It takes them back with the statement that writes down where
// Redis is now, so a reader who sees both agree sees those rows wait.
type tail struct {
	at    broker.Position
	lost  bool      // they disagree
	since time.Time // rows that were published after this will be published again
}

// readTail reads where the relay left Redis, and then where Redis is: it only gets further meanwhile.
func (c Config) readTail(ctx context.Context, db *pgxpool.Pool, client *redis.Client) (tail, error) {
	var t tail
	var known broker.Position
	err := db.QueryRow(ctx, `
		select coalesce(r.broker_server, ''), coalesce(r.broker_last, ''),
		       coalesce((select max(published_at) from outbox) - make_interval(secs => $1::float8), 'epoch')
		from (select) as one
		left join outbox_relay r on r.name = 'outbox'`, c.RepublishWindow.Seconds()).Scan(&known.Server, &known.Last, &t.since)
	if err != nil {
		return t, fmt.Errorf("read where the relay left Redis: %w", err)
	}
	publisher, err := redisstream.NewPublisher(client.Options(), redisstream.PublisherConfig{Stream: stream})
	if err != nil {
		return t, fmt.Errorf("compare Redis with where the relay left it: %w", err)
	}
	defer publisher.Close()
	receipt, err := publisher.Publish(ctx, nil, known) // without events it writes nothing
	if err != nil {
		return t, fmt.Errorf("compare Redis with where the relay left it: %w", err)
	}
	t.at, t.lost = receipt.Position, receipt.Lost
	return t, nil
}

func (r *reading) readTail(ctx context.Context) (err error) {
	r.tail, err = r.cfg.readTail(ctx, r.db, r.client)
	return err
}

// again reports that the relay will publish the order's row for the group once more, as soon as it notices.
func (t tail) again(o order, group int) bool {
	return t.lost && o.published.After(t.since) && (o.only == "" || o.only == Groups[group])
}

// follows reports that Redis is the one that it was at an earlier time, and has lost nothing since.
func (t tail) follows(earlier tail) bool {
	return t.at.Server == earlier.at.Server && !parseEntryID(earlier.at.Last).after(parseEntryID(t.at.Last))
}
