package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/env"
	"example.com/orderfanout/outbox"
)

// republishFlags choose events and groups.
type republishFlags struct {
	since, order string
	groups       []string
	dryRun, yes  bool
	asJSON       bool
}

// republished is what republish prints as JSON.
type republished struct {
	Groups    []string `json:"groups"`
	Events    int      `json:"events"`    // that were chosen
	LeftOut   int      `json:"left_out"`  // that are for another group only
	Published int      `json:"published"` // with --dry-run 0
}

func republishCommand() *cobra.Command {
	var f republishFlags
	cmd := &cobra.Command{
		Use:   "republish",
		Short: "Publish events of the outbox again, for instance after Redis lost its stream",
		Long: `Publish events of the outbox again, with the ids that they had. A group that has done an event finds its marker and does
nothing. The mailer is left out unless it is named: its markers are in Redis, and where those are gone too, every mail
would go out a second time. An event that was meant for one group only goes to no other.

It stops where the stream has reached twice STREAM_MAX_LEN (1000000), as the relay does. Give it the value that orders has, in the environment.`,
		Example: "  fanout republish --since 2h\n  fanout republish --since 2026-11-29T12:00:00Z --group analytics\n  fanout republish --order 01a228be-4b34-7d40-bb91-ec87c5f1a6a8 --group bonus",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (f.since == "") == (f.order == "") {
				return errors.New("say how far back with --since, for instance --since 2h, or which order with --order")
			}
			return republish(cmd, f)
		},
	}
	cmd.Flags().StringVar(&f.order, "order", "", "only the event of this order")
	cmd.Flags().StringVar(&f.since, "since", "", "how far back: a duration (2h, 7d) or an RFC 3339 time; of the event's own time")
	f.groups = []string{"bonus", "analytics"}
	cmd.Flags().VarP(&groupList{names: &f.groups}, "group", "g", "groups that get them; may be given several times")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say how many there are")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON at the end, and the rest to stderr")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	_ = cmd.RegisterFlagCompletionFunc("group", cobra.FixedCompletions(groups, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// republish publishes the chosen events again, each once a group.
func republish(cmd *cobra.Command, f republishFlags) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	if f.asJSON {
		out = cmd.ErrOrStderr()
	}
	pool, err := connectPostgres(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, opts, err := connectRedis()
	if err != nil {
		return err
	}
	defer client.Close()
	r := env.NewReader(os.Getenv)
	cfg := redisstream.PublisherConfig{Stream: stream, MaxLen: streamMaxLen(r)}
	if err := r.Err(); err != nil {
		return err
	}
	publisher, err := redisstream.NewPublisher(opts, cfg)
	if err != nil {
		return err
	}
	defer publisher.Close()

	pages := func(page func([]broker.Event) error) error {
		event, err := orderEvent(ctx, pool, f.order)
		if err != nil {
			return err
		}
		if only := event.OnlyGroup; only != "" && !slices.Contains(f.groups, only) {
			return fmt.Errorf("the event of order %s is for %s only", f.order, only)
		}
		return page([]broker.Event{event})
	}
	what := "event of order " + f.order
	if f.order == "" {
		from, err := parseSince(f.since, time.Now())
		if err != nil {
			return err
		}
		what = "events since " + from.UTC().Format(time.RFC3339)
		pages = func(page func([]broker.Event) error) error { return outbox.Events(ctx, pool, from, page) }
	}
	total, others := 0, 0
	err = pages(func(events []broker.Event) error {
		for _, e := range events {
			if e.OnlyGroup == "" || slices.Contains(f.groups, e.OnlyGroup) {
				total++
			} else {
				others++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d %s, for %v\n", total, what, f.groups)
	if others > 0 {
		fmt.Fprintf(out, "%d more are for another group only, and are left out\n", others)
	}
	sent := 0
	finish := func() error {
		if !f.asJSON {
			return nil
		}
		return printJSON(cmd, republished{f.groups, total, others, sent})
	}
	if f.dryRun || total == 0 {
		return finish()
	}
	if err := confirmed(cmd, f.yes, "Publish again?"); err != nil {
		return err
	}
	err = pages(func(events []broker.Event) error {
		went := make(map[string]bool, len(events))
		for _, group := range f.groups {
			chosen := eventsFor(events, group)
			if len(chosen) == 0 {
				continue
			}
			if _, err := publisher.Publish(ctx, chosen, broker.Position{}); err != nil {
				return fmt.Errorf("after %d events: %w (running it again does no harm)", sent, err)
			}
			for _, e := range chosen {
				went[e.ID] = true
			}
		}
		sent += len(went)
		fmt.Fprintf(out, "%d of %d\n", sent, total)
		return nil
	})
	if err != nil {
		return err
	}
	return finish()
}

// eventsFor returns those of the events that the group may have, now for it only.
func eventsFor(events []broker.Event, group string) []broker.Event {
	var out []broker.Event
	for _, e := range events {
		if e.OnlyGroup == "" || e.OnlyGroup == group {
			e.OnlyGroup = group
			out = append(out, e)
		}
	}
	return out
}

// orderEvent reads the event of an order from the outbox. One that is not published yet will be by itself.
func orderEvent(ctx context.Context, pool *pgxpool.Pool, orderID string) (broker.Event, error) {
	var id pgtype.UUID
	if err := id.Scan(orderID); err != nil {
		return broker.Event{}, fmt.Errorf("order %.64q is not a UUID", orderID)
	}
	var e broker.Event
	var published bool
	err := pool.QueryRow(ctx, `
		select b.event_id, b.source, b.type, b.time, b.subject, b.partition_key, b.data_content_type, b.data_schema,
		       b.trace_parent, b.only_group, b.data, b.published_at is not null
		from orders o
		join outbox b on b.event_id = o.event_id
		where o.id = $1::uuid`, id).Scan(&e.ID, &e.Source, &e.Type, &e.Time, &e.Subject, &e.PartitionKey, &e.DataContentType,
		&e.DataSchema, &e.TraceParent, &e.OnlyGroup, &e.Data, &published)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return broker.Event{}, fmt.Errorf("order %s has no row in the outbox: there is no such order, or it is older than OUTBOX_RETENTION", orderID)
	case err != nil:
		return broker.Event{}, fmt.Errorf("read the event of order %s: %w", orderID, err)
	case !published:
		return broker.Event{}, fmt.Errorf("the event of order %s is not published yet: the relay does that", orderID)
	}
	e.Time = e.Time.UTC()
	return e, nil
}

// parseSince reads a duration before now, or a time.
func parseSince(s string, now time.Time) (time.Time, error) {
	if d, err := env.ParseDuration(s); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("--since %q is neither a duration (2h, 7d) nor an RFC 3339 time", s)
}
