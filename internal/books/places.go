package books

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker/redisstream"
)

// place is where an event stands for a group. Where it stands in several, the last of this list counts.
type place uint8

const (
	nowhere place = iota
	acked         // an entry in the stream that the group has acknowledged
	dead
	inOutbox
	unread
	pending
)

// trace is what was met of an event, for each group.
type trace struct {
	at      [3]place
	acked   [3]uint16 // entries that are acknowledged
	letters [3]uint16 // dead letters
}

// places is what was met so far.
type places struct {
	cfg    Config
	db     *pgxpool.Pool
	client *redis.Client

	events map[string]trace // by event id
	outbox Outbox
	groups [3]groupPlaces
	walked string // the last entry that was read, "" at first
	first  string // the first entry of the stream when it was first read
	info   streamInfo
}

// groupPlaces is how far a group is.
type groupPlaces struct {
	missing    bool
	delivered  entryID
	pending    map[string]struct{} // entry ids
	unread     int64               // entries
	oldest     []Pending
	letters    int64
	walkedDead string // the last dead letter that was read
}

// streamInfo is what Redis says of the stream.
type streamInfo struct {
	length        int64
	lastGenerated string
	maxDeleted    string
}

const (
	oldestSize  = 5
	outboxPage  = 5000
	pendingPage = 5000
	walkStep    = 500 // entries in one run of the script, so that Redis is held up for some milliseconds only
)

// read goes along the flow: outbox, unread, pending, dead letters. A second time it reads the outbox and the groups again, and of the
// stream and the dead letters what came since.
func (p *places) read(ctx context.Context) error {
	for _, step := range []func(context.Context) error{p.readOutbox, p.readGroups, p.walk, p.walkDead} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// meet notes that the event was met at a place.
func (p *places) meet(eventID string, group int, at place) {
	t := p.events[eventID]
	t.at[group] = max(t.at[group], at)
	switch at {
	case acked:
		t.acked[group]++
	case dead:
		t.letters[group]++
	}
	p.events[eventID] = t
}

// readOutbox reads the rows that are not published, in pages.
func (p *places) readOutbox(ctx context.Context) error {
	p.outbox = Outbox{}
	var last int64
	err := p.db.QueryRow(ctx, `
		select coalesce(max(id), 0) from outbox where published_at is not null`).Scan(&last)
	if err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	for after := int64(0); ; {
		rows, err := p.db.Query(ctx, `
			select id, event_id, only_group, extract(epoch from clock_timestamp() - created_at)::float8
			from outbox
			where published_at is null and id + 0 > $1
			order by id + 0
			limit $2`, after, outboxPage)
		if err != nil {
			return fmt.Errorf("read the outbox after row %d: %w", after, err)
		}
		var eventID, only string
		var age float64
		n := 0
		_, err = pgx.ForEachRow(rows, []any{&after, &eventID, &only, &age}, func() error {
			n++
			p.outbox.Unpublished++
			p.outbox.OldestSeconds = max(p.outbox.OldestSeconds, age)
			if after < last && age > 60 {
				p.outbox.Overtaken++
			}
			for g, name := range Groups {
				if only == "" || only == name {
					p.meet(eventID, g, inOutbox)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the outbox after row %d: %w", after, err)
		}
		if n < outboxPage {
			return nil
		}
	}
}

// readGroups reads each group's last delivered id and, after that, what it has pending.
func (p *places) readGroups(ctx context.Context) error {
	now, err := p.client.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("read Redis's clock: %w", err)
	}
	groups, err := p.client.XInfoGroups(ctx, stream).Result()
	if err != nil && !isNoKey(err) {
		return fmt.Errorf("read the groups of %s: %w", stream, err)
	}
	for i, name := range Groups {
		g := &p.groups[i]
		g.missing, g.delivered, g.pending, g.unread, g.oldest = true, entryID{}, map[string]struct{}{}, 0, nil
		for _, info := range groups {
			if info.Name == name {
				g.missing, g.delivered = false, parseEntryID(info.LastDeliveredID)
			}
		}
		if g.missing {
			continue
		}
		if err := g.readPending(ctx, p.client, name, now); err != nil {
			return fmt.Errorf("read what %s has pending: %w", name, err)
		}
	}
	return nil
}

func (g *groupPlaces) readPending(ctx context.Context, client *redis.Client, name string, now time.Time) error {
	for start := "-"; ; {
		page, err := client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: stream, Group: name, Start: start, End: "+", Count: pendingPage}).Result()
		if err != nil {
			return err
		}
		for _, e := range page {
			g.pending[e.ID] = struct{}{}
			if len(g.oldest) < oldestSize {
				g.oldest = append(g.oldest, Pending{
					EntryID: e.ID, Owner: e.Consumer, Deliveries: e.RetryCount, IdleSeconds: e.Idle.Seconds(),
					AgeSeconds: max(0, now.Sub(parseEntryID(e.ID).time()).Seconds()),
				})
			}
		}
		if len(page) < pendingPage {
			break
		}
		start = "(" + page[len(page)-1].ID
	}
	for i := range g.oldest {
		if err := g.oldest[i].readFailures(ctx, client, name); err != nil {
			return err
		}
	}
	return nil
}

func (e *Pending) readFailures(ctx context.Context, client *redis.Client, group string) error {
	v, err := client.HGet(ctx, failKey(group), e.EntryID).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	failures, due, _ := strings.Cut(v, ":")
	e.Failures, _ = strconv.ParseInt(failures, 10, 64)
	if ms, err := strconv.ParseInt(due, 10, 64); err == nil {
		t := time.UnixMilli(ms).UTC()
		e.NextTry = &t
	}
	return nil
}

// walkScript lists entries without their bodies.
//
//	KEYS  stream
//	ARGV  start of the range, most entries
//	reply {entry id, event id, the group that it is for or "", …}
var walkScript = redis.NewScript(`
local reply = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])) do
  local id, only, fields = '', '', entry[2]
  for i = 1, #fields, 2 do
    if fields[i] == 'id' then id = fields[i + 1] end
    if fields[i] == 'onlygroup' then only = fields[i + 1] end
  end
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = entry[1], id, only
end
return reply`)

// walkFrom calls do with each entry of the stream at key after the entry last, in order, and returns the last that it met.
func walkFrom(ctx context.Context, client *redis.Client, key, last string, do func(entry, eventID, only string)) (string, error) {
	for {
		start := "-"
		if last != "" {
			start = "(" + last
		}
		reply, err := walkScript.Run(ctx, client, []string{key}, start, walkStep).StringSlice()
		if err != nil {
			return last, fmt.Errorf("read %s from %s: %w", key, start, err)
		}
		for i := 0; i+2 < len(reply); i += 3 {
			last = strings.Clone(reply[i])
			do(last, reply[i+1], reply[i+2])
		}
		if len(reply) < 3*walkStep {
			return last, nil
		}
	}
}

// walk reads the entries that were not read yet.
func (p *places) walk(ctx context.Context) error {
	if err := p.readInfo(ctx); err != nil {
		return err
	}
	var err error
	p.walked, err = walkFrom(ctx, p.client, stream, p.walked, func(entry, eventID, only string) {
		id := parseEntryID(entry)
		for i, name := range Groups {
			g := &p.groups[i]
			at := acked
			if _, ok := g.pending[entry]; ok {
				at = pending
			}
			if id.after(g.delivered) {
				at = unread
				g.unread++
			}
			if at == pending {
				for k := range g.oldest {
					if g.oldest[k].EntryID == entry {
						g.oldest[k].EventID = eventID
					}
				}
			}
			if eventID != "" && (only == "" || only == name) {
				p.meet(eventID, i, at)
			}
		}
	})
	return err
}

// readInfo notes how long the stream is and what ids it has had.
func (p *places) readInfo(ctx context.Context) error {
	info, err := p.client.XInfoStream(ctx, stream).Result()
	if isNoKey(err) {
		p.info = streamInfo{}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read about %s: %w", stream, err)
	}
	p.info = streamInfo{length: info.Length, lastGenerated: info.LastGeneratedID, maxDeleted: info.MaxDeletedEntryID}
	if p.first == "" {
		p.first = info.FirstEntry.ID
	}
	return nil
}

// walkDead reads the dead letters that were not read yet.
func (p *places) walkDead(ctx context.Context) error {
	for i, name := range Groups {
		g := &p.groups[i]
		var err error
		g.walkedDead, err = walkFrom(ctx, p.client, redisstream.DeadKey(stream, name), g.walkedDead, func(_, eventID, _ string) {
			g.letters++
			if eventID != "" {
				p.meet(eventID, i, dead)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isNoKey reports that there is no stream.
func isNoKey(err error) bool { return err != nil && strings.Contains(err.Error(), "no such key") }
