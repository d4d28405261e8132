package books

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// sumsCheck is what orders and markers add up to, by the order's day, beside what analytics had before.
type sumsCheck struct {
	before  sums
	after   sums                // read when all else was
	sure    map[string]*amounts // with a marker
	taken   map[string]*amounts // their marker set has ended and they are met nowhere: taken as counted
	maybe   map[string]*amounts // the same, but waiting or dead: counted or not
	markers map[string]int64    // with a marker, by the day of the event's id
}

func (r *reading) readSumsBefore(ctx context.Context) (err error) {
	r.sums = sumsCheck{sure: map[string]*amounts{}, taken: map[string]*amounts{}, maybe: map[string]*amounts{}, markers: map[string]int64{}}
	r.sums.before, err = readSums(ctx, r.client, r.cfg)
	return err
}

// readSumsAfter reads the sums once more. What of the markers ended meanwhile is in them as ended.
func (r *reading) readSumsAfter(ctx context.Context) (err error) {
	if r.sums.after, err = readSums(ctx, r.client, r.cfg); err == nil {
		r.sums.after.recall(r.sums.before)
	}
	return err
}

// forgotten reports that the marker set in which the order would be had ended before the markers were read.
func (c *sumsCheck) forgotten(o order) bool { return c.before.forgotten(o) }

func (c *sumsCheck) add(o order) {
	at(c.sure, o.day).add(o)
	c.markers[o.made.Format(time.DateOnly)]++
}
func (c *sumsCheck) addForgotten(o order) { at(c.taken, o.day).add(o) }
func (c *sumsCheck) addMaybe(o order)     { at(c.maybe, o.day).add(o) }

func at(m map[string]*amounts, key string) *amounts {
	a := m[key]
	if a == nil {
		a = &amounts{}
		m[key] = a
	}
	return a
}

// earlier stands for all days that have no sums of their own: what they add up to is the totals less the days.
const earlier = "days without sums of their own"

// judgeSums compares the sums with orders and markers.
func (r *reading) judgeSums(context.Context) error {
	g, c, after := r.groups[2], &r.sums, r.sums.after
	for id, o := range r.suspects[2] {
		if after.forgotten(o) { // its set has ended meanwhile
			c.addForgotten(o)
			continue
		}
		g.Lost++
		note := nowhereNote(o)
		if r.events[id].at[2] == acked {
			note = "acknowledged, and not counted"
		}
		add(&g.LostIDs, o.item(note))
	}
	for day, n := range c.before.marked {
		if after.marked[day] == 0 {
			continue // the set has ended meanwhile
		}
		if more := n - c.markers[day]; more > 0 {
			g.WithoutOrder += more
			add(&g.WithoutOrderIDs, Item{Note: fmt.Sprintf("%d events were counted, with ids made on %s, that are no order's", more, day)})
		}
	}
	strangers := g.WithoutOrder
	low, high := c.before.byBucket(after), after.byBucket(c.before)
	sure, taken, maybe := inBuckets(c.sure, low), inBuckets(c.taken, low), inBuckets(c.maybe, low)
	for _, day := range slices.Sorted(maps.Keys(low)) {
		strangers = r.judgeDay(g, day, low[day], high[day], *at(sure, day), *at(taken, day), *at(maybe, day), strangers)
	}
	if n := at(taken, earlier).orders + at(maybe, earlier).orders + at(sure, earlier).orders; n > 0 {
		g.Notes = append(g.Notes, fmt.Sprintf("%d orders are of days that analytics keeps no more; they were compared as one sum", n))
	}
	return nil
}

// judgeDay compares one day. What analytics had before must not be above, what it had after not below, what orders and
// markers add up to. Orders with an ended marker set count as counted as long as the sums have room for them.
func (r *reading) judgeDay(g *Group, day string, low, high, sure, taken, maybe amounts, strangers int64) (strangersLeft int64) {
	want := sure.orders + taken.orders
	g.Done += taken.orders
	if short := want - high.orders; short > 0 {
		g.Lost += short
		g.Done -= short
		g.differ("orders of "+day, want, high.orders)
		add(&g.LostIDs, Item{Note: fmt.Sprintf("%d of %s, which their markers or age say were counted, are not in the sum", short, day)})
	}
	if excess := low.orders - want - maybe.orders; excess > 0 {
		g.differ("orders of "+day, want, low.orders)
		known := min(excess, strangers)
		strangers -= known
		if excess -= known; excess > 0 {
			g.Twice += excess
			add(&g.TwiceIDs, Item{Note: fmt.Sprintf("%d more were counted on %s than there are; a sum does not tell which", excess, day)})
		}
	}
	currencies := make(map[string]bool)
	for _, a := range []amounts{low, high, sure, taken} {
		for currency := range a.revenue {
			currencies[currency] = true
		}
	}
	for _, currency := range slices.Sorted(maps.Keys(currencies)) {
		want := sure.revenue[currency] + taken.revenue[currency]
		if got := high.revenue[currency]; got < want {
			g.differ(currency+" of "+day, want, got)
		} else if got := low.revenue[currency]; got > want+maybe.revenue[currency] {
			g.differ(currency+" of "+day, want, got)
		}
	}
	return strangers
}

// byBucket returns the days that other has too, and the rest of the totals as earlier.
func (s *sums) byBucket(other sums) map[string]amounts {
	out := make(map[string]amounts)
	rest := amounts{orders: s.totals.orders, revenue: maps.Clone(s.totals.revenue)}
	for day, a := range s.days {
		if _, ok := other.days[day]; !ok {
			continue
		}
		out[day] = a
		rest.orders -= a.orders
		for currency, n := range a.revenue {
			rest.revenue[currency] -= n
		}
	}
	out[earlier] = rest
	return out
}

// inBuckets adds the days up into the buckets that there are.
func inBuckets(days map[string]*amounts, buckets map[string]amounts) map[string]*amounts {
	out := make(map[string]*amounts)
	for day, a := range days {
		if _, ok := buckets[day]; !ok {
			day = earlier
		}
		sum := at(out, day)
		sum.orders += a.orders
		if sum.revenue == nil {
			sum.revenue = make(map[string]int64)
		}
		for currency, n := range a.revenue {
			sum.revenue[currency] += n
		}
	}
	return out
}
