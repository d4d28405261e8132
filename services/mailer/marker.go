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
	life      time.Duration // of "sending"; longer than a handler may run
	retention time.Duration // of "sent"

	// unmarked are the events whose mail this process has sent without being able to say so in Redis. While Redis is away
	// the mail is not sent again, and the marker follows when the entry comes back to us.
	mu       sync.Mutex
	unmarked map[string]struct{}
}

func newMarkers(client *redis.Client, life, retention time.Duration) *markers {
	return &markers{client: client, life: life, retention: retention, unmarked: make(map[string]struct{})}
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
