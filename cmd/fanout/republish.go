package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/env"
	"example.com/orderfanout/outbox"
)

func republishCommand() *cobra.Command {
	var since string
	var chosen []string
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "republish",
		Short: "Publish events of the outbox again, for instance after Redis lost its stream",
		Long: `Publish events of the outbox again, with the ids that they had. A group that has done an event finds its marker and does
nothing. The mailer is left out unless it is named: its markers are in Redis, and where those are gone too, every mail
would go out a second time.`,
		Example: "  fanout republish --since 2h\n  fanout republish --since 2026-11-29T12:00:00Z --group analytics",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := parseSince(since, time.Now())
			if err != nil {
				return err
			}
			for _, group := range chosen {
				if err := checkGroup(group); err != nil {
					return err
				}
			}
			ctx := cmd.Context()
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
			publisher, err := redisstream.NewPublisher(opts, redisstream.PublisherConfig{Stream: stream})
			if err != nil {
				return err
			}
			defer publisher.Close()

			total := 0
			if err := outbox.Events(ctx, pool, from, func(events []broker.Event) error { total += len(events); return nil }); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%d events since %s, for %v\n", total, from.UTC().Format(time.RFC3339), chosen)
			if dryRun || total == 0 {
				return nil
			}
			if err := confirmed(cmd, yes, "Publish them again?"); err != nil {
				return err
			}
			sent := 0
			err = outbox.Events(ctx, pool, from, func(events []broker.Event) error {
				for _, group := range chosen {
					for i := range events {
						events[i].OnlyGroup = group
					}
					if _, err := publisher.Publish(ctx, events, broker.Position{}); err != nil {
						return fmt.Errorf("after %d events: %w (running it again does no harm)", sent, err)
					}
				}
				sent += len(events)
				fmt.Fprintf(out, "%d of %d\n", sent, total)
				return nil
			})
			return err
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "how far back: a duration (2h, 7d) or an RFC 3339 time; of the event's own time")
	cmd.Flags().StringSliceVarP(&chosen, "group", "g", []string{"bonus", "analytics"}, "groups that get them; may be given several times")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say how many there are")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	_ = cmd.RegisterFlagCompletionFunc("group", cobra.FixedCompletions(groups, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// parseSince reads a duration before now, or a time.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, errors.New("say how far back with --since, for instance --since 2h")
	}
	if d, err := env.ParseDuration(s); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("--since %q is neither a duration (2h, 7d) nor an RFC 3339 time", s)
}
