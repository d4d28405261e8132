package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.com/orderfanout/broker"
)

// maxIdle is how long a connection is kept without a mail. Servers close theirs after some minutes.
const maxIdle = 30 * time.Second

// errUnknown says that nobody knows whether the server took the mail: the connection broke after the final dot and before
// the reply.
var errUnknown = errors.New("the connection broke before the server's reply: sent or not, nobody knows")

// sender hands mails to a server, over connections that it keeps for the next ones.
type sender struct {
	server server
	keep   int // connections

	mu     sync.Mutex
	idle   []*conn // the last one was used last
	closed bool
}

func newSender(s server, keep int) *sender { return &sender{server: s, keep: keep} }

// Send hands the mail over. An error carries its verdict:
//
//   - [broker.Permanent]: the server refuses this mail for good (5xx), with its reply;
//   - [broker.Unavailable]: the server is away, or turns everybody away, so this mail is not to blame;
//   - one that is errUnknown: the mail may have been taken;
//   - any other: the server refuses this mail for now (4xx).
//
// No error has a mail address in it.
func (s *sender) Send(ctx context.Context, m *message) error {
	if c := s.take(); c != nil {
		// The server may have closed a kept connection, or be tired of it, and we only learn so by using it.
		if err := s.deliver(ctx, c, m); !stale(err) || ctx.Err() != nil {
			return verdict(err, m)
		}
	}
	c, err := s.server.dial(ctx)
	if err != nil {
		return verdict(err, m)
	}
	return verdict(s.deliver(ctx, c, m), m)
}

// deliver uses c for one mail and then keeps it, where it is in order, or closes it.
func (s *sender) deliver(ctx context.Context, c *conn, m *message) error {
	err := c.deliver(ctx, m)
	e, failed := errors.AsType[*stepError](err)
	switch {
	case ctx.Err() != nil: // a deadline in the past may still be on its way to the connection
	case failed && (e.reply() == nil || e.reply().Code == 421 || c.reset(ctx) != nil):
	default:
		s.put(c)
		return err
	}
	_ = c.raw.Close()
	return err
}

// stale reports whether a failure on a kept connection may lie in the connection's age: nothing was handed over, and
// it broke, or the server says goodbye (421), or turns to a mail that it does not know yet.
func stale(err error) bool {
	e, ok := errors.AsType[*stepError](err)
	if !ok || e.step == stepFinal {
		return false
	}
	r := e.reply()
	return r == nil || r.Code == 421 || e.step == stepMail && r.Code/100 == 4
}

// verdict says what a failure means for the entry, and hides the addresses in it.
func verdict(err error, m *message) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*stepError](err)
	if !ok {
		return broker.Permanent(err)
	}
	hidden := errors.New(shorten(mask(e.Error(), m.to)))
	r := e.reply()
	switch {
	case r == nil && e.step == stepFinal:
		return fmt.Errorf("%w (%w)", errUnknown, hidden)
	case r == nil || r.Code == 421 || !slices.Contains([]step{stepMail, stepRcpt, stepData, stepContent, stepFinal}, e.step):
		return broker.Unavailable(hidden)
	case e.step == stepMail && (r.Code/100 == 4 || r.Code == 530 || r.Code == 535):
		// MAIL names the sender only: what is refused here, every other mail would meet as well. (530, 535: log in first.)
		return broker.Unavailable(hidden)
	case r.Code/100 == 5:
		return broker.Permanent(hidden)
	default:
		return hidden
	}
}

// shorten cuts a server's novel.
func shorten(text string) string {
	const most = 500
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// take returns the connection that was used last, or nil.
func (s *sender) take() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		return nil
	}
	c := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	c.expire.Stop()
	return c
}

// put keeps c for the next mail.
func (s *sender) put(c *conn) {
	s.mu.Lock()
	full := s.closed || len(s.idle) >= s.keep
	if !full {
		s.idle = append(s.idle, c)
		c.expire = time.AfterFunc(maxIdle, func() { s.drop(c) })
	}
	s.mu.Unlock()
	if full {
		c.quit()
	}
}

// drop closes c where nobody has taken it.
func (s *sender) drop(c *conn) {
	s.mu.Lock()
	i := slices.Index(s.idle, c)
	if i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
	}
	s.mu.Unlock()
	if i >= 0 {
		c.quit()
	}
}

// Close closes the kept connections. Those in use are closed by their users.
func (s *sender) Close() {
	s.mu.Lock()
	idle := s.idle
	s.idle, s.closed = nil, true
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range idle {
		c.expire.Stop()
		wg.Go(c.quit)
	}
	wg.Wait()
}
