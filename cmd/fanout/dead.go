package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/orderfanout/broker/redisstream"
)

// deadFlags choose dead letters of one group.
type deadFlags struct {
	group  string
	ids    []string
	all    bool
	dryRun bool
	yes    bool
	asJSON bool
}

func deadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Look at what failed for good, and give it back or throw it away",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 { // else cobra would print the help and call it a success
				return fmt.Errorf("there is no %s %s: list, show, redrive and discard there are", cmd.CommandPath(), args[0])
			}
			return nil
		},
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, // the wrong name matters, not its flags
		RunE:               func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(deadListCommand(), deadShowCommand(),
		deadActCommand("redrive", "Give dead letters back to their group, and to no other, with fresh counts", "redriven",
			func(ctx context.Context, d *redisstream.DeadLetters, id string) (string, error) {
				return d.Redrive(ctx, id)
			}),
		deadActCommand("discard", "Throw dead letters away for good", "discarded",
			func(ctx context.Context, d *redisstream.DeadLetters, id string) (string, error) {
				return "", d.Discard(ctx, id)
			}))
	return cmd
}

// withDead runs do on the dead letters of the group.
func withDead(group string, do func(d *redisstream.DeadLetters) error) error {
	if err := checkGroup(group); err != nil {
		return err
	}
	client, _, err := connectRedis()
	if err != nil {
		return err
	}
	defer client.Close()
	return do(redisstream.NewDeadLetters(client, stream, group))
}

// each calls do with every dead letter, oldest first.
func each(ctx context.Context, d *redisstream.DeadLetters, do func(redisstream.DeadLetter) error) error {
	for after := ""; ; {
		page, err := d.List(ctx, after, 500)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, letter := range page {
			if err := do(letter); err != nil {
				return err
			}
			after = letter.ID
		}
	}
}

func deadListCommand() *cobra.Command {
	var f deadFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the dead letters of a group",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDead(f.group, func(d *redisstream.DeadLetters) error {
				letters := []redisstream.DeadLetter{}
				err := each(cmd.Context(), d, func(l redisstream.DeadLetter) error { letters = append(letters, l); return nil })
				if err != nil {
					return err
				}
				if f.asJSON {
					return printJSON(cmd, letters)
				}
				if len(letters) == 0 {
					fmt.Fprintf(cmd.OutOrStdout(), "%s has no dead letters\n", f.group)
					return nil
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "ID\tAT\tREASON\tATTEMPTS\tSUBJECT\tERROR")
				for _, l := range letters {
					fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", l.ID, l.At.Format(time.RFC3339), l.Reason, l.Attempts, l.Event.Subject, l.Error)
				}
				return w.Flush()
			})
		},
	}
	groupFlag(cmd, &f.group)
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

func deadShowCommand() *cobra.Command {
	var f deadFlags
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one dead letter with all fields of its entry",
		Args:  oneArg("which one? Give its id, from fanout dead list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDead(f.group, func(d *redisstream.DeadLetters) error {
				l, err := d.Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if f.asJSON {
					return printJSON(cmd, l)
				}
				out := cmd.OutOrStdout()
				fmt.Fprintf(out, "dead letter %s of %s\n  reason    %s\n  error     %s\n  attempts  %d\n  entry     %s\n  consumer  %s\n  at        %s\nfields\n",
					l.ID, f.group, l.Reason, l.Error, l.Attempts, l.EntryID, l.Consumer, l.At.Format(time.RFC3339Nano))
				for i := 0; i+1 < len(l.Fields); i += 2 {
					fmt.Fprintf(out, "  %s: %s\n", l.Fields[i], l.Fields[i+1])
				}
				return nil
			})
		},
	}
	groupFlag(cmd, &f.group)
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

func deadActCommand(use, short, done string, act func(context.Context, *redisstream.DeadLetters, string) (string, error)) *cobra.Command {
	var f deadFlags
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.all && len(f.ids) > 0:
				return errors.New("either --id or --all")
			case !f.all && len(f.ids) == 0:
				return errors.New("name dead letters with --id, or take --all")
			}
			return withDead(f.group, func(d *redisstream.DeadLetters) error {
				ids := f.ids
				if f.all {
					err := each(cmd.Context(), d, func(l redisstream.DeadLetter) error { ids = append(ids, l.ID); return nil })
					if err != nil {
						return err
					}
				}
				if len(ids) == 0 && !f.asJSON {
					fmt.Fprintf(cmd.OutOrStdout(), "%s has no dead letters\n", f.group)
				}
				if !f.dryRun && len(ids) > 0 {
					if err := confirmed(cmd, f.yes, fmt.Sprintf("%s: %s %d dead letters?", f.group, use, len(ids))); err != nil {
						return err
					}
				}
				results := []deadResult{}
				var err error
				for _, id := range ids {
					r := deadResult{ID: id, Done: !f.dryRun}
					if f.dryRun {
						_, err = d.Get(cmd.Context(), id)
					} else {
						r.EntryID, err = act(cmd.Context(), d, id)
					}
					if err != nil {
						break
					}
					results = append(results, r)
					if !f.asJSON {
						fmt.Fprintln(cmd.OutOrStdout(), r.text(done))
					}
				}
				if f.asJSON {
					err = errors.Join(printJSON(cmd, results), err)
				}
				return err
			})
		},
	}
	groupFlag(cmd, &f.group)
	cmd.Flags().StringSliceVar(&f.ids, "id", nil, "id of a dead letter; may be given several times")
	cmd.Flags().BoolVar(&f.all, "all", false, "all dead letters of the group")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

// deadResult is what was done with a dead letter, or would be.
type deadResult struct {
	ID      string `json:"id"`
	Done    bool   `json:"done"`               // false: a dry run
	EntryID string `json:"entry_id,omitempty"` // of the new entry, where it was redriven
}

func (r deadResult) text(done string) string {
	switch {
	case !r.Done:
		return r.ID + " would be " + done
	case r.EntryID != "":
		return r.ID + " " + done + " as entry " + r.EntryID
	}
	return r.ID + " " + done
}
