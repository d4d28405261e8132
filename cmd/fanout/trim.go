package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/env"
)

// trimResult is what fanout trim prints as JSON.
type trimResult struct {
	DryRun  bool     `json:"dry_run"`
	Removed int64    `json:"removed"` // or would be
	Length  int64    `json:"length"`  // of what is left, or would be
	Blocked []string `json:"blocked_by"`
	Unknown []string `json:"unknown_groups"`
}

func trimCommand() *cobra.Command {
	var dryRun, yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "trim",
		Short: "Remove from the stream what is old and done, and say who keeps it from being trimmed",
		Long: `Do once what orders does every few seconds: remove entries that every group has acknowledged and whose event is older than
STREAM_RETENTION (24h), or that lie beyond STREAM_MAX_LEN (1000000). Give it the values that orders has, in the environment.
What a group has not read or not acknowledged is never removed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, _, err := connectRedis()
			if err != nil {
				return err
			}
			defer client.Close()
			trimmer, err := newTrimmer(client)
			if err != nil {
				return err
			}
			status, err := trimmer.Preview(cmd.Context())
			if err != nil {
				return err
			}
			if !dryRun && status.Removed > 0 {
				if err := confirmed(cmd, yes, fmt.Sprintf("Remove %d of %d entries?", status.Removed, status.Removed+status.Length)); err != nil {
					return err
				}
				if err := trimmer.Trim(cmd.Context()); err != nil {
					return err
				}
				status = trimmer.Status()
			}
			if asJSON {
				return printJSON(cmd, trimResult{dryRun, status.Removed, status.Length, sorted(status.Blocked), sorted(status.Unknown)})
			}
			done := "removed"
			if dryRun {
				done = "would be removed"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d entries %s, %d are left\n", status.Removed, done, status.Length)
			printBlocked(cmd.OutOrStdout(), status)
			return nil
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be removed")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// streamMaxLen is how orders reads it.
func streamMaxLen(r *env.Reader) int64 {
	return int64(r.Int("STREAM_MAX_LEN", 1_000_000, 1, 1_000_000_000))
}

// newTrimmer returns a trimmer with the settings that orders reads.
func newTrimmer(client *redis.Client) (*redisstream.Trimmer, error) {
	r := env.NewReader(os.Getenv)
	cfg := redisstream.TrimConfig{
		Stream:    stream,
		Groups:    groups,
		Retention: r.Duration("STREAM_RETENTION", 24*time.Hour, time.Second),
		MaxLen:    streamMaxLen(r),
		Logger:    slog.New(slog.DiscardHandler),
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return redisstream.NewTrimmer(client, cfg)
}

// blockers reads who keeps the stream from being trimmed.
func blockers(ctx context.Context, client *redis.Client) (redisstream.TrimStatus, error) {
	trimmer, err := newTrimmer(client)
	if err != nil {
		return redisstream.TrimStatus{}, err
	}
	return trimmer.Preview(ctx)
}

func printBlocked(out io.Writer, s redisstream.TrimStatus) {
	if len(s.Blocked) > 0 {
		fmt.Fprintf(out, "trimming is blocked by %s: entries are due that it has not acknowledged, or there is no such group\n",
			strings.Join(sorted(s.Blocked), ", "))
	}
	if len(s.Unknown) > 0 {
		fmt.Fprintf(out, "nobody configured the group %s: it keeps nothing from being trimmed\n", strings.Join(sorted(s.Unknown), ", "))
	}
}

// sorted returns a sorted copy that JSON shows as [] where there is nothing.
func sorted(list []string) []string {
	list = append([]string{}, list...)
	slices.Sort(list)
	return list
}
