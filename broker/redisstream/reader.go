package redisstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/orderfanout/broker"
)

// read takes up this consumer's own pending entries, then new ones, until ctx is done. It calls stop where the name
// turns out to be another's.
func (s *session) read(ctx context.Context, stop func()) {
	calm := calm{log: s.log, what: "read"}
	own := "-" // where the next page of own entries starts; "" when all were taken up
	if !s.makeGroupFirst(ctx, &calm) {
		return
	}
	for {
		room := 0
		if !s.asked() {
			room = s.table.awaitRoom(ctx)
		}
		if ctx.Err() != nil {
			if s.asked() { // what it brings is this consumer's
				_ = s.readNew(ctx, 0)
			}
			return
		}
		s.unanswered.CompareAndSwap(0, uptime(time.Now()))
		var err error
		if s.renamed.CompareAndSwap(true, false) {
			if err = s.plate.check(ctx, s.cmds, false); errors.Is(err, errNameTaken) {
				s.nameLost.Store(true)
				stop()
				return
			}
		}
		if errors.Is(err, errNameDisputed) {
			s.renamed.Store(true)
			sleep(ctx, calmFirst)
			continue
		}
		switch {
		case err != nil:
			s.renamed.Store(true)
		case own != "":
			own, err = s.take(ctx, takeArgs{owner: s.name, start: own, most: room})
		default:
			err = s.readNew(ctx, room)
		}
		if err == nil {
			s.unanswered.Store(0)
			s.readErr.Store(nil)
			calm.ok()
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.readErr.Store(&err)
		s.holdClaims(time.Now())
		if streamGone(err) {
			s.groupLost() // another consumer may make the group before this one meets NOGROUP
		}
		if groupGone(err) {
			own = "-"
			s.groupLost()
			err = errors.Join(err, s.makeGroup(ctx))
		}
		sleep(ctx, calm.fail(err))
	}
}

// makeGroupFirst makes the group at the start of a session, and tries until it is there or ctx is done.
func (s *session) makeGroupFirst(ctx context.Context, calm *calm) bool {
	for {
		s.unanswered.CompareAndSwap(0, uptime(time.Now()))
		err := s.makeGroup(ctx)
		if err == nil {
			return true
		}
		s.readErr.Store(&err)
		if !sleep(ctx, calm.fail(err)) {
			return false
		}
	}
}

// makeGroup makes the group at 0, so that what was written before it is not lost
// (https://redis.io/docs/latest/commands/xgroup-create/). Where it was gone, what is held was read in a group that is no
// more: acknowledgements not yet sent are dropped, since an id may come again in a new stream.
func (s *session) makeGroup(ctx context.Context) error {
	s.groupMu.Lock()
	defer s.groupMu.Unlock()
	err := s.cmds.XGroupCreateMkStream(ctx, s.cfg.Stream, s.cfg.Group, "0").Err()
	if err != nil && strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make group %s of %s: %w", s.cfg.Group, s.cfg.Stream, err)
	}
	s.groupLost()
	s.log.Info("consumer group made")
	return nil
}

// groupLost notes that the group was made anew, by this consumer or by another.
func (s *session) groupLost() { s.acks.drop(s.table, s.table.newEpoch()) }

// groupGone reports whether the stream or the group is not there. A read that was blocked meanwhile answers
// UNBLOCKED first, as it does when the server changes its role.
func groupGone(err error) bool { return strings.Contains(err.Error(), "NOGROUP") }

// streamGone reports whether the stream went while a read was blocked on it.
func streamGone(err error) bool { return strings.Contains(err.Error(), "UNBLOCKED the stream key") }

// readNew reads entries that nobody was given before, and asks for the next ones before it decodes them. most is for where
// nothing was asked yet.
func (s *session) readNew(ctx context.Context, most int) (err error) {
	defer func() {
		if err != nil && s.wire != nil {
			// Also after an error reply: a server that was demoted answers READONLY for ever on the connections that it has.
			s.wire.close()
			s.wire = nil
		}
	}()
	if s.wire == nil {
		if s.wire, err = s.dial(ctx); err != nil {
			return err
		}
	}
	if s.wire.asked.IsZero() {
		if err := s.askNew(most); err != nil {
			return err
		}
	}
	raw, asked, err := s.wire.reply()
	if err != nil {
		return err
	}
	if n := entriesIn(raw); n > 0 && ctx.Err() == nil {
		if room := s.table.roomBeside(n); room > 0 {
			if err := s.askNew(room); err != nil {
				return err
			}
		}
	}
	entries, err := parseEntries(raw)
	if err != nil {
		return err
	}
	for _, e := range entries {
		e.renewed = asked // no earlier; the answer may have been long on its way
	}
	s.accept(entries)
	return nil
}

func (s *session) askNew(most int) error {
	return s.wire.ask("XREADGROUP", "GROUP", s.cfg.Group, s.name, "COUNT", strconv.Itoa(most),
		"BLOCK", strconv.FormatInt(block.Milliseconds(), 10), "STREAMS", s.cfg.Stream, ">")
}

// asked reports whether a reply is still to come.
func (s *session) asked() bool { return s.wire != nil && !s.wire.asked.IsZero() }

// accept takes entries in. Those that are not for this handler are acknowledged unseen.
func (s *session) accept(entries []*entry) {
	var skipped []*entry
	kept := entries[:0]
	for _, e := range entries {
		if s.wanted(e) {
			kept = append(kept, e)
		} else {
			skipped = append(skipped, e)
		}
	}
	s.table.add(kept)
	if len(skipped) == 0 {
		return
	}
	s.table.addSkipped(skipped)
	for _, e := range skipped {
		e.Hand(e.failures+1, e.deliveries)
		s.report(&e.Delivery, broker.Skipped, 0, nil)
	}
	s.ack(skipped)
}

func (s *session) wanted(e *entry) bool {
	if e.OnlyGroup != "" && e.OnlyGroup != s.cfg.Group {
		return false
	}
	if e.bury != nil {
		return true
	}
	return len(s.cfg.Types) == 0 || slices.Contains(s.cfg.Types, e.Type)
}
