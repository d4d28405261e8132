package books

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/outbox"
)

// Motion is what is still under way: cheap to read, and no judgement.
type Motion struct {
	Unpublished int // at outbox.BacklogLimit there may be more
	// TailLost: Redis is not where the relay left it. What that published last it will publish again.
	TailLost bool
	Groups   []GroupMotion
}

// GroupMotion is one group's part of it.
type GroupMotion struct {
	Name    string
	Missing bool
	// Unread is -1 where there are some and Redis cannot tell how many.
	Unread, Pending int64
}

// ReadMotion reads what is under way.
func (c Config) ReadMotion(ctx context.Context, db *pgxpool.Pool, client *redis.Client) (Motion, error) {
	backlog, err := outbox.Waiting(ctx, db)
	if err != nil {
		return Motion{}, err
	}
	tail, err := c.withDefaults().readTail(ctx, db, client)
	if err != nil {
		return Motion{}, err
	}
	m := Motion{Unpublished: backlog.Rows, TailLost: tail.lost}
	infos, err := client.XInfoGroups(ctx, stream).Result()
	if err != nil && !isNoKey(err) {
		return Motion{}, fmt.Errorf("read the groups of %s: %w", stream, err)
	}
	noStream := isNoKey(err)
	for _, name := range Groups {
		g := GroupMotion{Name: name, Missing: !noStream} // without a stream nothing can wait in it
		for _, info := range infos {
			if info.Name != name {
				continue
			}
			g.Missing, g.Unread, g.Pending = false, info.Lag, info.Pending
			if info.Lag != 0 { // after deletions Redis cannot tell, and after a restart it has been seen to tell of some where none are
				next, err := client.XRangeN(ctx, stream, "("+info.LastDeliveredID, "+", 1).Result()
				if err != nil {
					return Motion{}, fmt.Errorf("read what %s has not read: %w", name, err)
				}
				if len(next) == 0 {
					g.Unread = 0
				}
			}
		}
		m.Groups = append(m.Groups, g)
	}
	return m, nil
}

// Settled reports that nothing is under way.
func (m Motion) Settled() bool {
	if m.Unpublished > 0 || m.TailLost {
		return false
	}
	for _, g := range m.Groups {
		if g.Missing || g.Unread != 0 || g.Pending != 0 {
			return false
		}
	}
	return true
}

// String is one line.
func (m Motion) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "outbox %d", m.Unpublished)
	if m.TailLost {
		b.WriteString(", and what was published last comes again: Redis is not where the relay left it")
	}
	for _, g := range m.Groups {
		switch {
		case g.Missing:
			fmt.Fprintf(&b, "; %s: no such group", g.Name)
		case g.Unread < 0:
			fmt.Fprintf(&b, "; %s: some unread, %d pending", g.Name, g.Pending)
		default:
			fmt.Fprintf(&b, "; %s: %d unread, %d pending", g.Name, g.Unread, g.Pending)
		}
	}
	return b.String()
}
