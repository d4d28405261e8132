package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
)

// markerMargin is how much longer than a handler may run its marker lives.
const markerMargin = 30 * time.Second

// finishTimeout bounds the writes after a send, which a cancelled handler makes all the same.
const finishTimeout = 5 * time.Second

const sent = "sent"

func sending(entryID string) string { return "sending " + entryID }

// begin takes the marker for an entry.
//
//	KEYS[1]  the marker
//	ARGV[1]  "sending <entry id>"
//	ARGV[2]  its life, in milliseconds
//
// It answers what stands there where that keeps us from sending ("sent", or "sending" with another entry's id), and ""
// after it has written ARGV[1]: nothing stood there, or it was this entry's own, whose worker is gone or whose last try
// ended in doubt.
var begin = redis.NewScript(`
local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[1] then return found end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ''
`)

// takeOver gives the marker of another entry to this one.
//
//	KEYS[1]  the marker
//	ARGV[1]  what stands there
//	ARGV[2]  "sending <entry id>"
//	ARGV[3]  its life, in milliseconds
//
// It answers 1, or 0 where something else stands there by now.
var takeOver = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
`)

// release takes a marker back, where it is still ours.
//
//	KEYS[1]  the marker
//	ARGV[1]  "sending <entry id>"
//
// It answers how many keys it deleted.
var release = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
`)

// markers keeps one marker an event.
type markers struct {
	client    *redis.Client
	stream    string
	group     string
	life      time.Duration // of "sending"; longer than a handler may run
	retention time.Duration // of "sent"

	// unmarked are the events whose mail this process has sent without being able to say so in Redis. While Redis is away
	// the mail is not sent again, and the marker follows when the entry comes back to us.
	mu       sync.Mutex
	unmarked map[string]struct{}
}

func newMarkers(client *redis.Client, cfg redisstream.Config, retention time.Duration) *markers {
	life := cfg.HandlerTimeout + markerMargin
	return &markers{client: client, stream: cfg.Stream, group: cfg.Group, life: life, retention: retention, unmarked: make(map[string]struct{})}
}

// Begin takes the marker of d and returns "", or returns what keeps the caller from sending, as begin does.
func (m *markers) Begin(ctx context.Context, d *broker.Delivery) (found string, err error) {
	m.mu.Lock()
	_, done := m.unmarked[d.ID]
	m.mu.Unlock()
	if done {
		return sent, m.Finish(ctx, d)
	}
	found, err = begin.Run(ctx, m.client, []string{markerKey(d.ID)}, sending(d.EntryID), m.life.Milliseconds()).Text()
	if err != nil {
		return "", redisError(fmt.Errorf("take marker of %s: %w", d.ID, err))
	}
	return found, nil
}

// TakeOver takes the marker for d, a redrive, where it stands for an entry that is not pending any more: that one went to the
// dead letters with its mail in doubt, and nobody is sending. It reports whether d has the marker now.
func (m *markers) TakeOver(ctx context.Context, d *broker.Delivery, found string) (bool, error) {
	id := strings.TrimPrefix(found, sending(""))
	pending, err := m.client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: m.stream, Group: m.group, Start: id, End: id, Count: 1}).Result()
	if err != nil {
		return false, redisError(fmt.Errorf("ask for entry %s: %w", id, err))
	}
	if len(pending) > 0 {
		return false, nil
	}
	n, err := takeOver.Run(ctx, m.client, []string{markerKey(d.ID)}, found, sending(d.EntryID), m.life.Milliseconds()).Int()
	if err != nil {
		return false, redisError(fmt.Errorf("take marker of %s over: %w", d.ID, err))
	}
	return n == 1, nil
}

// Finish notes that the mail is sent, also where ctx is done. After an error the process remembers it, and Begin tries
// again.
func (m *markers) Finish(ctx context.Context, d *broker.Delivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	err := m.client.Set(ctx, markerKey(d.ID), sent, m.retention).Err()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.unmarked[d.ID] = struct{}{}
		return redisError(fmt.Errorf("mark %s as sent: %w", d.ID, err))
	}
	delete(m.unmarked, d.ID)
	return nil
}

// Release takes the marker back after a definite refusal. An error is of no weight: the marker ends by itself, and does
// not keep this same entry from another try.
func (m *markers) Release(ctx context.Context, d *broker.Delivery) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	_ = release.Run(ctx, m.client, []string{markerKey(d.ID)}, sending(d.EntryID)).Err()
}

// redisError gives a failure of Redis its verdict. Only a key of the wrong kind and an error in a script can be one
// entry's fault; all else (no connection, LOADING, READONLY, OOM, NOREPLICAS, a refused login) is an outage.
func redisError(err error) error {
	if reply, ok := errors.AsType[redis.Error](err); ok && !redis.IsMaxClientsError(err) {
		if code, _, _ := strings.Cut(reply.Error(), " "); code == "WRONGTYPE" || code == "ERR" {
			return err
		}
	}
	return broker.Unavailable(err)
}
