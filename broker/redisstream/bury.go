package redisstream

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/internal/crash"
)

// bury moves an entry to the dead letters and acknowledges it, both or neither. Where Redis refuses (full memory, a
// wrong type under the key) the entry stays pending and the burial alone is tried again.
func (s *session) bury(ctx context.Context, e *entry, took time.Duration) {
	crash.At(crash.EntryBuries)
	owned, err := s.writeDead(ctx, e)
	if err != nil {
		s.table.wait(e, max(s.buryCalm.fail(err), s.cfg.RetryMin))
		return
	}
	s.buryCalm.ok()
	if !owned {
		s.lose(e, "")
		return
	}
	crash.At(crash.EntryBuried)
	s.table.forget(e)
	s.report(&e.Delivery, broker.Dead, took, errors.New(e.bury.err))
}

func (s *session) writeDead(ctx context.Context, e *entry) (owned bool, err error) {
	ctx, cancel := s.detached(ctx)
	defer cancel()
	stream, group := s.cfg.Stream, s.cfg.Group
	fields := e.fields()
	args := make([]any, 0, len(fields)+16)
	args = append(args, group, s.name, e.EntryID, len(fields))
	for _, f := range fields {
		args = append(args, f)
	}
	args = append(args,
		"dead_reason", e.bury.reason,
		"dead_error", e.bury.err,
		"dead_attempts", strconv.Itoa(e.failures),
		"dead_entry_id", e.EntryID,
		"dead_consumer", s.name,
		"dead_at", time.Now().UTC().Format(time.RFC3339Nano))
	n, err := deadScript.Run(ctx, s.cmds, []string{stream, DeadKey(stream, group), failKey(stream, group)}, args...).Int()
	return n == 1, err
}

// note logs an error at most once a minute and leaves the waiting to somebody else.
func (l *loud) note(err error) { l.fail(err) }

// logOutcome writes the one line that an outcome gets.
func (s *session) logOutcome(d *broker.Delivery, outcome broker.Outcome, took time.Duration, err error) {
	level := slog.LevelInfo
	switch outcome {
	case broker.Retried, broker.Lost:
		level = slog.LevelWarn
	case broker.Dead:
		level = slog.LevelError
	}
	ctx := context.Background()
	if !s.log.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs,
		slog.String("event_id", d.ID),
		slog.String("entry_id", d.EntryID),
		slog.String("subject", d.Subject),
		slog.Int("attempt", d.Attempt),
		slog.Int("delivery", d.Delivery),
		slog.String("outcome", string(outcome)),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000))
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	s.log.LogAttrs(ctx, level, "event handled", attrs...)
}
