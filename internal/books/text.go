package books

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Text writes the report for people.
func (r *Report) Text(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%d orders accepted\n\n", r.Accepted)
	fmt.Fprint(w, "\t")
	for _, g := range r.Groups {
		fmt.Fprintf(w, "%s\t", g.Name)
	}
	fmt.Fprintln(w)
	for _, row := range []struct {
		name string
		of   func(Group) int64
		rare bool // left out where all are 0
	}{
		{"done", func(g Group) int64 { return g.Done }, false},
		{"waiting in the outbox", func(g Group) int64 { return g.Waiting.Outbox }, false},
		{"waiting unread", func(g Group) int64 { return g.Waiting.Unread }, false},
		{"waiting pending", func(g Group) int64 { return g.Waiting.Pending }, false},
		{"dead", func(g Group) int64 { return g.Dead }, false},
		{"in doubt", func(g Group) int64 { return g.InDoubt }, true},
		{"unknown", func(g Group) int64 { return g.Unknown }, true},
		{"LOST", func(g Group) int64 { return g.Lost }, false},
		{"DONE TWICE", func(g Group) int64 { return g.Twice }, false},
		{"WITHOUT AN ORDER", func(g Group) int64 { return g.WithoutOrder }, true},
		{"AMOUNTS THAT DIFFER", func(g Group) int64 { return g.DifferenceCount }, true},
		{"repeats absorbed", func(g Group) int64 { return g.Repeats }, false},
	} {
		sum := int64(0)
		for _, g := range r.Groups {
			sum += row.of(g)
		}
		if row.rare && sum == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t", row.name)
		for _, g := range r.Groups {
			if row.name == "DONE TWICE" && g.Name == mailer {
				fmt.Fprint(w, "?\t")
				continue
			}
			fmt.Fprintf(w, "%d\t", row.of(g))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if r.Outbox.Unpublished > 0 {
		fmt.Fprintf(out, "outbox: %d rows are not published, the oldest for %s; %d older than a minute were overtaken: the broker refuses them\n",
			r.Outbox.Unpublished, Seconds(r.Outbox.OldestSeconds), r.Outbox.Overtaken)
	}
	if r.Outbox.TailLost {
		fmt.Fprintf(out, "outbox: %s\n", tailNote)
	}
	for _, g := range r.Groups {
		g.text(out)
	}
	_, err := fmt.Fprintf(out, "%s (%s)\n", r.Verdict().sentence(), Seconds(r.Seconds))
	return err
}

func (g Group) text(out io.Writer) {
	say := func(format string, args ...any) { fmt.Fprintf(out, g.Name+": "+format+"\n", args...) }
	for _, p := range g.Oldest {
		what := p.EventID
		if what == "" {
			what = "(its body is gone)"
		}
		say("pending %s, event %s: %s has it, delivery %d, %d failures, %s old, idle %s",
			p.EntryID, what, p.Owner, p.Deliveries, p.Failures, Seconds(p.AgeSeconds), Seconds(p.IdleSeconds))
	}
	if stray := g.Waiting.UnreadEntries + g.Waiting.PendingEntries - g.Waiting.Unread - g.Waiting.Pending; stray > 0 {
		say("%d more entries are unread or pending: repeats, entries for another group, or no order's", stray)
	}
	if g.DeadLetters > 0 {
		say("%d dead letters, %d of them no order's: fanout dead list --group %s", g.DeadLetters, g.DeadForeign, g.Name)
	}
	for _, s := range []struct {
		what  string
		items []Item
	}{{"in doubt", g.InDoubtSample}, {"LOST", g.LostIDs}, {"DONE TWICE", g.TwiceIDs}, {"WITHOUT AN ORDER", g.WithoutOrderIDs}} {
		for _, item := range s.items {
			say("%s: %s", s.what, item)
		}
	}
	for _, d := range g.Differences {
		say("%s: %d, but should be %d", d.What, d.Got, d.Want)
	}
	for _, note := range g.Notes {
		say("%s", note)
	}
}

// String names the order.
func (i Item) String() string {
	s := ""
	if i.OrderID != "" {
		s = "order " + i.OrderID + ", event " + i.EventID + ": "
	}
	return s + i.Note
}

func (v Verdict) sentence() string {
	switch v {
	case Balanced:
		return "The books balance."
	case Waiting:
		return "Nothing is wrong, but not everything is done yet."
	default:
		return "The books do NOT balance: something is lost, done twice or done wrong."
	}
}

// Seconds shows a number of seconds as people read it.
func Seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Text writes the passport for people.
func (p *Passport) Text(out io.Writer) error {
	clock := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }
	fmt.Fprintf(out, "order %s, event %s\n", p.OrderID, p.EventID)
	fmt.Fprintf(out, "  accepted   %s  %d %s of customer %s\n", clock(p.AcceptedAt), p.Total, p.Currency, p.CustomerID)
	switch b := p.Outbox; {
	case b == nil:
		fmt.Fprintln(out, "  outbox     its row was removed")
	case b.PublishedAt == nil:
		fmt.Fprintf(out, "  outbox     %s  row %d, not published yet\n", clock(b.CreatedAt), b.ID)
	default:
		fmt.Fprintf(out, "  published  %s  row %d, as entry %s\n", clock(*b.PublishedAt), b.ID, b.EntryID)
	}
	if p.TailLost {
		fmt.Fprintf(out, "  again      %s\n", tailNote)
	}
	for _, e := range p.Entries {
		note := ""
		if e.OnlyGroup != "" {
			note = ", for " + e.OnlyGroup + " only"
		}
		fmt.Fprintf(out, "  entry      %s  %s%s\n", clock(e.AddedAt), e.ID, note)
	}
	if len(p.Entries) == 0 {
		fmt.Fprintln(out, "  entry      the stream has none")
	}
	for _, s := range p.Groups {
		fmt.Fprintf(out, "%-9s  %s", s.Group, s.State)
		if s.Effect != "" {
			fmt.Fprintf(out, ": %s", s.Effect)
		}
		if s.At != nil {
			fmt.Fprintf(out, " at %s", clock(*s.At))
		}
		fmt.Fprintln(out)
		if e := s.Pending; e != nil {
			fmt.Fprintf(out, "  pending    %s  %s has it, delivery %d, %d failures, idle %s\n", e.EntryID, e.Owner, e.Deliveries, e.Failures, Seconds(e.IdleSeconds))
			if e.NextTry != nil {
				fmt.Fprintf(out, "  next try   %s\n", clock(*e.NextTry))
			}
		}
		if l := s.Dead; l != nil {
			fmt.Fprintf(out, "  dead       %s  %s, after %d attempts: %s (letter %s)\n", clock(l.At), l.Reason, l.Attempts, l.Error, l.ID)
		}
		if s.Repeats > 0 {
			fmt.Fprintf(out, "  repeats    %d more entries acknowledged\n", s.Repeats)
		}
	}
	_, err := fmt.Fprintln(out, p.Verdict().sentence())
	return err
}
