package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"example.com/orderfanout/broker/redisstream"
)

// groupState is what fanout lag shows of a group.
type groupState struct {
	Group   string `json:"group"`
	Missing bool   `json:"missing,omitempty"`
	// Unread is -1 where Redis cannot tell: entries were deleted from the middle of the stream.
	Unread        int64           `json:"unread"`
	Pending       int64           `json:"pending"`
	OldestPending string          `json:"oldest_pending,omitempty"` // entry id
	OldestSeconds float64         `json:"oldest_pending_seconds"`
	Dead          int64           `json:"dead"`
	Consumers     []consumerState `json:"consumers"`
}

type consumerState struct {
	Name        string  `json:"name"`
	Pending     int64   `json:"pending"`
	IdleSeconds float64 `json:"idle_seconds"`
}

func lagCommand() *cobra.Command {
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:   "lag",
		Short: "Show how far each group is, who has what, and who keeps the stream from being trimmed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, _, err := connectRedis()
			if err != nil {
				return err
			}
			defer client.Close()
			for {
				length, states, err := readLag(cmd.Context(), client)
				if err != nil {
					return err
				}
				trim, err := blockers(cmd.Context(), client)
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(cmd, map[string]any{"stream": stream, "length": length, "groups": states,
						"trim_blocked_by": sorted(trim.Blocked), "unknown_groups": sorted(trim.Unknown)})
				} else if err = printLag(cmd, length, states); err == nil {
					printBlocked(cmd.OutOrStdout(), trim)
				}
				if err != nil || !watch {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(time.Second):
				}
			}
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "again every second, until Ctrl-C")
	return cmd
}

func readLag(ctx context.Context, client *redis.Client) (length int64, states []groupState, err error) {
	if length, err = client.XLen(ctx, stream).Result(); err != nil {
		return 0, nil, fmt.Errorf("read the stream: %w", err)
	}
	infos, err := client.XInfoGroups(ctx, stream).Result()
	if err != nil && !strings.Contains(err.Error(), "no such key") {
		return 0, nil, fmt.Errorf("read the groups: %w", err)
	}
	known := map[string]redis.XInfoGroup{}
	for _, g := range infos {
		known[g.Name] = g
	}
	for _, name := range groups {
		g, ok := known[name]
		state := groupState{Group: name, Missing: !ok, Unread: g.Lag, Pending: g.Pending, Consumers: []consumerState{}}
		if state.Dead, err = client.XLen(ctx, redisstream.DeadKey(stream, name)).Result(); err != nil {
			return 0, nil, fmt.Errorf("read the dead letters of %s: %w", name, err)
		}
		if ok {
			err = errors.Join(state.checkUnread(ctx, client, g.LastDeliveredID), state.readPending(ctx, client))
		}
		if err != nil {
			return 0, nil, fmt.Errorf("read group %s: %w", name, err)
		}
		states = append(states, state)
	}
	return length, states, nil
}

// checkUnread looks whether there is anything behind the last entry that the group was given: after a restart of Redis its own count
// has been seen to tell of entries where there are none.
func (s *groupState) checkUnread(ctx context.Context, client *redis.Client, lastDelivered string) error {
	if s.Unread == 0 {
		return nil
	}
	next, err := client.XRangeN(ctx, stream, "("+lastDelivered, "+", 1).Result()
	if err == nil && len(next) == 0 {
		s.Unread = 0
	}
	return err
}

func (s *groupState) readPending(ctx context.Context, client *redis.Client) error {
	consumers, err := client.XInfoConsumers(ctx, stream, s.Group).Result()
	if err != nil {
		return err
	}
	for _, c := range consumers {
		s.Consumers = append(s.Consumers, consumerState{c.Name, c.Pending, c.Idle.Seconds()})
	}
	pending, err := client.XPending(ctx, stream, s.Group).Result()
	if err != nil || pending.Count == 0 {
		return err
	}
	s.OldestPending = pending.Lower
	now, err := client.Time(ctx).Result()
	if err != nil {
		return err
	}
	var ms int64
	if _, err := fmt.Sscanf(pending.Lower, "%d-", &ms); err != nil {
		return errors.New("an entry id is not milliseconds-sequence")
	}
	s.OldestSeconds = max(now.Sub(time.UnixMilli(ms)).Seconds(), 0)
	return nil
}

func printLag(cmd *cobra.Command, length int64, states []groupState) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "stream %s: %d entries\n", stream, length)
	fmt.Fprintln(w, "GROUP\tUNREAD\tPENDING\tOLDEST PENDING\tDEAD\tCONSUMERS")
	for _, s := range states {
		if s.Missing {
			fmt.Fprintf(w, "%s\tno such group yet\t\t\t%d\t\n", s.Group, s.Dead)
			continue
		}
		unread, oldest := fmt.Sprint(s.Unread), "-"
		if s.Unread < 0 {
			unread = "?"
		}
		if s.OldestPending != "" {
			oldest = fmt.Sprintf("%s (%s)", s.OldestPending, seconds(s.OldestSeconds))
		}
		var names []string
		for _, c := range s.Consumers {
			names = append(names, fmt.Sprintf("%s (%d pending, idle %s)", c.Name, c.Pending, seconds(c.IdleSeconds)))
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\n", s.Group, unread, s.Pending, oldest, s.Dead, strings.Join(names, ", "))
	}
	return w.Flush()
}

// seconds shows a number of seconds as people read it.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
