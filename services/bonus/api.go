package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"example.com/orderfanout/internal/problem"
)

const (
	// readTimeout bounds a look at an account.
	readTimeout = 3 * time.Second
	// retryAway is what Retry-After asks for while the database is away.
	retryAway = 2 * time.Second
)

// api answers HTTP.
type api struct {
	store *store
	log   *slog.Logger
	quiet atomic.Int64 // no line about an outage before this time
}

// bonus is the answer to GET /customers/{id}/bonus.
type bonus struct {
	CustomerID string  `json:"customer_id"`
	Balance    int64   `json:"balance"`
	Entries    []entry `json:"entries"`
	// NextCursor leads to the entries that follow; it is missing where there are none.
	NextCursor string `json:"next_cursor,omitempty"`
}

// pathParam returns a part of the path without its escapes, "" where they are wrong. chi routes by the path as it was sent where that
// is not how Go would have written it.
func pathParam(r *http.Request, name string) string {
	value := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return value
	}
	value, _ = url.PathUnescape(value)
	return value
}

// getBonus answers with a customer's balance and ledger, newest first.
func (a *api) getBonus(w http.ResponseWriter, r *http.Request) {
	q, p := parsePageQuery(pathParam(r, "id"), r.URL.RawQuery)
	if p != nil {
		p.Write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	// One more than asked for tells whether there is a next page.
	balance, entries, err := a.store.account(ctx, q.customerID, q.behind, q.limit+1)
	if err != nil {
		if r.Context().Err() == nil { // nobody waits for an answer otherwise
			a.writeError(w, err)
		}
		return
	}
	answer := bonus{CustomerID: q.customerID, Balance: balance, Entries: entries}
	if len(entries) > q.limit {
		last := entries[q.limit-1]
		answer.Entries, answer.NextCursor = entries[:q.limit], cursor{last.CreatedAt, last.EventID}.String()
	}
	if answer.Entries == nil {
		answer.Entries = []entry{} // [] rather than null
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone away
}

// writeError answers for a store that failed. What it said goes to the log only, and of an outage a line a minute.
func (a *api) writeError(w http.ResponseWriter, err error) {
	if faultOf(err) == mistake {
		a.log.Error("read account", "error", err.Error())
		problem.New(http.StatusInternalServerError, "something went wrong on our side").Write(w)
		return
	}
	if now, quiet := time.Now(), a.quiet.Load(); now.UnixNano() >= quiet &&
		a.quiet.CompareAndSwap(quiet, now.Add(time.Minute).UnixNano()) {
		a.log.Warn("accounts cannot be read", "error", err.Error())
	}
	p := problem.New(http.StatusServiceUnavailable, "the account cannot be read just now")
	p.RetryAfter = retryAway
	p.Write(w)
}
