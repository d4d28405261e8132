package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"example.com/orderfanout/internal/books"
	"example.com/orderfanout/internal/env"
)

// Exit codes of fanout check. fanout follow ends with exitWrong too, every other command with 0 or 1.
const (
	exitWaiting = 1
	exitWrong   = 2
	exitError   = 3 // the books could not be read
)

// verdictError ends a command with the verdict's code. It was printed already.
type verdictError books.Verdict

func (v verdictError) Error() string { return "the books are " + string(v) }

func (v verdictError) code() int {
	if books.Verdict(v) == books.Waiting {
		return exitWaiting
	}
	return exitWrong
}

// settlePause is the time between two looks while fanout check waits.
const settlePause = 500 * time.Millisecond

func checkCommand() *cobra.Command {
	var asJSON bool
	var wait time.Duration
	var orderID string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check that the books balance: every order done once by every group",
		Long: `Read Postgres and Redis, and say for every accepted order whether each group has done its work once. Nothing is changed,
and the system may work meanwhile. docs/proof.md says what is counted, and what cannot be known.

Where the services have PROCESSED_RETENTION (9d) or REPUBLISH_WINDOW (10s) of their own, give it the same, in the environment.

Exit codes:
  0  balanced: each order is done once by each group, as far as it can be known, and nothing is under way
  1  waiting: nothing is wrong, but something is not done yet, or is a dead letter, or --wait ended with something under way
  2  wrong: something is lost, done twice, done without an order, or sums do not agree
  3  the books could not be read, or the command was not understood`,
		Example: "  fanout check --wait 30s\n  fanout check --json | jq '.groups[] | {name, lost}'\n  fanout check --order 01a228be-4b34-7d40-bb91-ec87c5f1a6a8",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := readBooksConfig()
			if err != nil {
				return err
			}
			return withBoth(cmd.Context(), func(db *pgxpool.Pool, client *redis.Client) error {
				if cmd.Flags().Changed("order") {
					return checkOrder(cmd, cfg, db, client, orderID, wait, asJSON)
				}
				settled, err := settle(cmd.Context(), cmd.ErrOrStderr(), cfg, db, client, wait)
				if err != nil {
					return err
				}
				report, err := cfg.Read(cmd.Context(), db, client)
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(cmd, report)
				} else {
					err = report.Text(cmd.OutOrStdout())
				}
				switch verdict := report.Verdict(); {
				case err != nil:
				case verdict != books.Balanced:
					err = verdictError(verdict)
				case !settled:
					err = verdictError(books.Waiting)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().DurationVar(&wait, "wait", 0, "first wait until nothing is under way, at most this long")
	cmd.Flags().StringVar(&orderID, "order", "", "show the passport of one order")
	return cmd
}

// readBooksConfig reads the settings that the books depend on, as the services do. That PROCESSED_RETENTION fits the other
// retentions is the services' business.
func readBooksConfig() (books.Config, error) {
	r := env.NewReader(os.Getenv)
	cfg := books.Config{
		ProcessedRetention: r.Duration("PROCESSED_RETENTION", 9*24*time.Hour, time.Second),
		RepublishWindow:    r.Duration("REPUBLISH_WINDOW", 10*time.Second, time.Millisecond),
	}
	return cfg, r.Err()
}

// withBoth runs do with Postgres and Redis.
func withBoth(ctx context.Context, do func(*pgxpool.Pool, *redis.Client) error) error {
	db, err := connectPostgres(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	client, _, err := connectRedis()
	if err != nil {
		return err
	}
	defer client.Close()
	return do(db, client)
}

// settle waits until nothing is under way, with a line on progress for what changes. It is settled where nobody waits for it.
func settle(ctx context.Context, progress io.Writer, cfg books.Config, db *pgxpool.Pool, client *redis.Client, wait time.Duration) (settled bool, err error) {
	said := ""
	for deadline := time.Now().Add(wait); wait > 0; {
		motion, err := cfg.ReadMotion(ctx, db, client)
		if err != nil || motion.Settled() {
			return err == nil, err
		}
		if !time.Now().Before(deadline) {
			fmt.Fprintf(progress, "not settled after %s, so the books are not closed\n", wait)
			return false, nil
		}
		if now := motion.String(); now != said {
			fmt.Fprintln(progress, "waiting:", now)
			said = now
		}
		if err := pause(ctx, settlePause); err != nil {
			return false, err
		}
	}
	return true, nil
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// checkOrder prints an order's passport.
func checkOrder(cmd *cobra.Command, cfg books.Config, db *pgxpool.Pool, client *redis.Client, orderID string, wait time.Duration, asJSON bool) error {
	for deadline := time.Now().Add(wait); ; {
		passport, err := cfg.ReadPassport(cmd.Context(), db, client, orderID)
		if err != nil {
			return err
		}
		verdict := passport.Verdict()
		if verdict == books.Waiting && time.Now().Before(deadline) {
			if err := pause(cmd.Context(), settlePause); err != nil {
				return err
			}
			continue
		}
		if asJSON {
			err = printJSON(cmd, passport)
		} else {
			err = passport.Text(cmd.OutOrStdout())
		}
		if err == nil && verdict != books.Balanced {
			err = verdictError(verdict)
		}
		return err
	}
}

// exitCode is what the program ends with after cmd returned err.
func exitCode(cmd *cobra.Command, err error) int {
	var verdict verdictError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &verdict):
		return verdict.code()
	case cmd != nil && cmd.Name() == "check":
		return exitError
	default:
		return 1
	}
}
