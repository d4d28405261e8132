package main

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"example.com/orderfanout/internal/problem"
)

func (s *store) request(t *testing.T, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
	return w
}

func TestStats(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	w := s.request(t, "/stats")
	if got := w.Body.String(); w.Code != 200 || got != `{"orders":0,"customers":0,"revenue":{},"top_skus":[],"days":[]}`+"\n" {
		t.Errorf("nothing yet: %d %s", w.Code, got)
	}

	s.do(t, "HSET", totalsKey, "revenue:EUR", int64(math.MaxInt64-2500))
	first := time.Date(2026, 11, 29, 23, 0, 0, 0, time.UTC)
	s.mustHandle(t,
		placed(t, idAt(time.Now()), order("c-1", "EUR", "tea-100", 2, 1250, first)),
		placed(t, idAt(time.Now()), order("c-1", "JPY", "cup-1", 1, 900, first.Add(time.Hour))))
	const want = `{"orders":2,"customers":1,"revenue":{"EUR":9223372036854775807,"JPY":900},` +
		`"top_skus":[{"sku":"tea-100","quantity":2},{"sku":"cup-1","quantity":1}],` +
		`"days":[{"date":"2026-11-30","orders":1,"revenue":{"JPY":900}},{"date":"2026-11-29","orders":1,"revenue":{"EUR":2500}}]}`
	w = s.request(t, "/stats")
	if got := w.Body.String(); got != want+"\n" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStatsDays(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 40 {
		at := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC).AddDate(0, 0, -2*i)
		s.mustHandle(t, placed(t, idAt(time.Now()), order("c", "EUR", "a", 1, 1, at)))
	}
	for target, want := range map[string]int{"/stats": 31, "/stats?days=1": 1, "/stats?days=366": 40, "/stats?other=1": 31} {
		var got Stats
		if err := json.Unmarshal(s.request(t, target).Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Days) != want || got.Days[0].Date != "2026-11-29" || got.Orders != 40 {
			t.Errorf("%s: %d days from %s, %d orders", target, len(got.Days), got.Days[0].Date, got.Orders)
		}
	}
	for target, want := range map[string]int{
		"/stats?days=": 400, "/stats?days=x": 400, "/stats?days=1.5": 400, "/stats?days=1&days=2": 400,
		"/stats?days=0": 422, "/stats?days=367": 422, "/stats?days=-1": 422,
	} {
		w := s.request(t, target)
		var p problem.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		if w.Code != want || len(p.Errors) != 1 || p.Errors[0].Field != "days" {
			t.Errorf("%s: %d %s, want %d", target, w.Code, w.Body, want)
		}
	}
}

func TestStatsWithoutRedis(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.do(t, "SET", totalsKey, "x")
	check := func(what string) {
		t.Helper()
		w := s.request(t, "/stats")
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
			w.Header().Get("Content-Type") != "application/problem+json" || bytes.Contains(w.Body.Bytes(), []byte("127.0.0.1")) {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
	check("wrong type")
	_ = s.client.ShutdownNoSave(t.Context()).Err() // it closes the connection instead of answering
	check("gone")
}
