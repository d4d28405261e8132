package main

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"example.com/orderfanout/internal/books"
)

// followPause is the time between two looks at the order. Each is a few reads by key.
const followPause = 100 * time.Millisecond

// An order is called lost once it was in lostLooks looks in a row, over at least lostFor. In a single one what moves
// against the flow, such as a redrive, may seem to be.
const (
	lostLooks = 5
	lostFor   = 2 * time.Second
)

func followCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "follow ORDER",
		Short: "Watch one order on its way, until every group is done with it",
		Long: `Watch one order on its way, a line for each thing that happens, until every group is done with it, or Ctrl-C. A dead letter
does not end it: the order may be redriven. Where a group has lost the order it ends, after two seconds of looking, with
exit code 2, as fanout check does; also where the order was credited twice.

It looks ten times a second. What comes and goes between two looks, such as a quick delivery, is seen by its effect only.
Times are those that were written down (accepted, published, added, credited, dead), or else the time of the look, with a "~".

PROCESSED_RETENTION and REPUBLISH_WINDOW are as for fanout check.`,
		Example: "  fanout follow 01a228be-4b34-7d40-bb91-ec87c5f1a6a8",
		Args:    oneArg("which order? Give its id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := readBooksConfig()
			if err != nil {
				return err
			}
			return withBoth(cmd.Context(), func(db *pgxpool.Pool, client *redis.Client) error {
				return follow(cmd, cfg.NewWatch(db, client, args[0]))
			})
		},
	}
}

func follow(cmd *cobra.Command, watch *books.Watch) error {
	var before *books.Passport
	var lost losing
	for {
		now, err := watch.Look(cmd.Context())
		if err != nil {
			return err
		}
		for _, line := range changes(before, now, time.Now()) {
			fmt.Fprintln(cmd.OutOrStdout(), line)
		}
		if lost.look(now, time.Now()) {
			for _, line := range losses(now, time.Now()) {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			return verdictError(books.Wrong)
		}
		// One look may miss what moves against the flow, such as a redrive, so the end must be seen twice.
		if before != nil && finished(before) && finished(now) {
			if now.Verdict() == books.Wrong { // credited twice
				return verdictError(books.Wrong)
			}
			return nil
		}
		before = now
		if err := pause(cmd.Context(), followPause); err != nil {
			return err
		}
	}
}

// losing counts the looks in a row in which some group has lost the order.
type losing struct {
	looks int
	since time.Time
}

// look takes a look into account, and reports that the order is lost.
func (l *losing) look(p *books.Passport, at time.Time) bool {
	if !p.Lost() {
		*l = losing{}
		return false
	}
	if l.looks++; l.looks == 1 {
		l.since = at
	}
	return l.looks >= lostLooks && at.Sub(l.since) >= lostFor
}

// losses says which groups have lost the order, a line each.
func losses(p *books.Passport, at time.Time) []string {
	l := lines{look: at}
	for _, s := range p.Groups {
		if s.Lost() {
			l.add(nil, "%s: LOST: not done, not under way, and no dead letter", s.Group)
		}
	}
	return l.out
}

// finished reports that every group is done with the order.
func finished(p *books.Passport) bool {
	for _, s := range p.Groups {
		if !s.Settled() {
			return false
		}
	}
	return true
}

// changes says what happened to the order between two looks, a line each. before is nil at the first.
func changes(before, now *books.Passport, at time.Time) []string {
	l := lines{look: at}
	if before == nil {
		l.add(&now.AcceptedAt, "accepted: %d %s of customer %s, event %s", now.Total, now.Currency, now.CustomerID, now.EventID)
		before = &books.Passport{Groups: make([]books.Standing, len(now.Groups))}
	}
	if b := now.Outbox; b != nil && b.PublishedAt != nil {
		if old := before.Outbox; old == nil || old.PublishedAt == nil || old.EntryID != b.EntryID {
			l.add(b.PublishedAt, "published as entry %s, %s after it was committed", b.EntryID, b.PublishedAt.Sub(b.CreatedAt).Round(time.Millisecond))
		}
	}
	for _, e := range now.Entries[min(len(before.Entries), len(now.Entries)):] {
		switch {
		case e.OnlyGroup != "":
			l.add(&e.AddedAt, "added for %s only, as entry %s", e.OnlyGroup, e.ID)
		case now.Outbox == nil || now.Outbox.PublishedAt != nil && e.ID != now.Outbox.EntryID:
			l.add(&e.AddedAt, "added as entry %s", e.ID)
		}
	}
	for i := range now.Groups {
		l.group(before.Groups[i], now.Groups[i])
	}
	return l.out
}

// lines collects what happened.
type lines struct {
	look time.Time
	out  []string
}

func (l *lines) add(at *time.Time, format string, args ...any) {
	when, mark := l.look, "~"
	if at != nil && !at.IsZero() {
		when, mark = *at, " "
	}
	l.out = append(l.out, when.UTC().Format("15:04:05.000")+mark+" "+fmt.Sprintf(format, args...))
}

// group says what a group did.
func (l *lines) group(old, now books.Standing) {
	say := func(at *time.Time, format string, args ...any) { l.add(at, now.Group+": "+format, args...) }
	if e := now.Pending; e != nil {
		was := old.Pending
		switch {
		case was == nil || was.EntryID != e.EntryID:
			say(nil, "read by %s (entry %s, delivery %d)", e.Owner, e.EntryID, e.Deliveries)
		case was.Owner != e.Owner:
			say(nil, "%s was lost, claimed by %s (delivery %d)", was.Owner, e.Owner, e.Deliveries)
		case was.Deliveries < e.Deliveries:
			say(nil, "given to %s again (delivery %d)", e.Owner, e.Deliveries)
		}
		if e.Failures > 0 && (was == nil || was.EntryID != e.EntryID || was.Failures < e.Failures) {
			next := ""
			if e.NextTry != nil {
				next = ", next try at " + e.NextTry.Format("15:04:05.000")
			}
			say(nil, "failed, %d so far%s", e.Failures, next)
		}
	}
	if now.State != old.State {
		switch {
		case now.State == "done":
			say(now.At, "%s", now.Effect)
		case now.State == "unknown" || now.State == "in doubt":
			say(nil, "%s whether it was done", now.State)
		}
	}
	if now.Twice && !old.Twice {
		say(nil, "%s", now.Effect)
	}
	if now.Repeats > old.Repeats && now.State == "done" {
		say(nil, "repeat absorbed (%d so far)", now.Repeats)
	}
	if d := now.Dead; d != nil && (old.Dead == nil || old.Dead.ID != d.ID) {
		say(&d.At, "dead, %s: %s (letter %s)", d.Reason, d.Error, d.ID)
	}
	if old.Dead != nil && now.Dead == nil {
		say(nil, "its dead letter was redriven or thrown away")
	}
}
