package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/internal/problem"
)

// idempotencyKey returns the request's Idempotency-Key, "" where it has none.
// See https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/.
func idempotencyKey(h http.Header) (string, *problem.Problem) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(values) > 1 || len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key, func(c rune) bool { return c < '!' || c > '~' }) {
		return "", problem.New(http.StatusBadRequest, "Idempotency-Key must be one header of 1 to 255 visible ASCII characters, without spaces")
	}
	return key, nil
}

// replay returns the order that p's key stands for. It returns errKeyReused where that was for another request, and errKeyGone
// where the key no longer counts: then p can be placed.
func replay(ctx context.Context, conn *pgxpool.Conn, p *placement) (stored, error) {
	const sql = `
		select order_id, request_hash, created_at < now() - interval '24 hours'
		from idempotency_keys where customer_id = $1::text and key = $2::text`
	var id uuid.UUID
	var hash []byte
	var expired bool
	err := conn.QueryRow(ctx, sql, p.order.CustomerID, p.key).Scan(&id, &hash, &expired)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return stored{}, errKeyGone // removed in this moment
	case err != nil:
		return stored{}, fmt.Errorf("read idempotency key: %w", err)
	case id == p.id:
		return stored{id: p.order.ID, data: p.data}, nil // placed by an earlier try of this very request
	case expired:
		return stored{}, forgetKey(ctx, conn, p)
	case !bytes.Equal(hash, p.hash):
		return stored{}, errKeyReused
	}
	data, err := readOrder(ctx, conn, id)
	return stored{id: id.String(), data: data, replayed: true}, err
}

// errKeyGone says that a key which stood in the way does no longer.
var errKeyGone = errors.New("idempotency key is gone")

// forgetKey removes a key that is older than 24 h. It returns errKeyGone, or what went wrong.
func forgetKey(ctx context.Context, conn *pgxpool.Conn, p *placement) error {
	const sql = `
		delete from idempotency_keys
		where customer_id = $1::text and key = $2::text and created_at < now() - interval '24 hours'`
	if _, err := conn.Exec(ctx, sql, p.order.CustomerID, p.key); err != nil {
		return fmt.Errorf("delete old idempotency key: %w", err)
	}
	return errKeyGone
}

// keyBatch is how many keys forgetKeys removes in one statement: few enough to hold nobody up.
const keyBatch = 1_000

// forgetKeys removes keys that are older than 24 h, at the start and once a minute, until ctx is done.
func forgetKeys(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	const sql = `
		delete from idempotency_keys
		where (customer_id, key) in (
		    select customer_id, key from idempotency_keys
		    where created_at < now() - interval '24 hours' order by created_at limit $1::int)
		and created_at < now() - interval '24 hours'`
	var quiet calm
	for {
		tag, err := execWithin(ctx, pool, 10*time.Second, sql, keyBatch)
		if err != nil && ctx.Err() == nil && quiet.due() {
			log.Warn("old idempotency keys are not removed", "error", err.Error())
		}
		wait := time.Minute - rand.N(15*time.Second) // replicas should not move in step
		if err == nil && tag == keyBatch {
			wait = 100 * time.Millisecond
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

func execWithin(ctx context.Context, pool *pgxpool.Pool, limit time.Duration, sql string, args ...any) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tag, err := pool.Exec(ctx, sql, args...)
	return tag.RowsAffected(), err
}
