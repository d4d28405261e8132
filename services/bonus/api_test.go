package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/internal/problem"
)

// get asks the API.
func (w *world) get(t testing.TB, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := chi.NewRouter()
	r.Get("/customers/{id}/bonus", (&api{store: w.store, log: slog.New(slog.NewTextHandler(io.Discard, nil))}).getBonus)
	rec := httptest.NewRecorder()
	r.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return rec
}

// bonus asks for an answer that is well.
func (w *world) bonus(t testing.TB, path string) bonus {
	t.Helper()
	rec := w.get(t, path)
	var got bonus
	dec := json.NewDecoder(bytes.NewReader(rec.Body.Bytes()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); rec.Code != http.StatusOK || err != nil || rec.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("GET %s = %d %s, %v", path, rec.Code, rec.Body, err)
	}
	return got
}

func TestGetBonus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if body := strings.TrimSpace(w.get(t, "/customers/nobody/bonus").Body.String()); body != `{"customer_id":"nobody","balance":0,"entries":[]}` {
		t.Errorf("unknown customer: %s", body)
	}
	first, second := placed(t, "c-42.x_y:z", 1234), placed(t, "c-42.x_y:z", 50)
	w.mustHandle(t, first, placed(t, "c-43", 100_000))
	w.mustHandle(t, second)
	got := w.bonus(t, "/customers/c-42.x_y:z/bonus")
	if got.CustomerID != "c-42.x_y:z" || got.Balance != 12 || got.NextCursor != "" || len(got.Entries) != 2 {
		t.Fatalf("got %+v", got)
	}
	for i, d := range []*broker.Delivery{second, first} {
		e := got.Entries[i]
		if e.EventID != d.ID || !strings.Contains(string(d.Data), e.OrderID) || e.Points != []int64{0, 12}[i] ||
			time.Since(e.CreatedAt) > time.Minute || e.CreatedAt.Location() != time.UTC {
			t.Errorf("entry %d = %+v, want event %s", i, e, d.ID)
		}
	}
	if escaped := w.bonus(t, "/customers/c%2D42.x_y%3Az/bonus"); escaped.Balance != 12 {
		t.Errorf("escaped id: %+v", escaped)
	}
}

// Pages follow each other without a gap or a repeat, also among entries of one moment.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []string
	for range 5 {
		batch := make([]*broker.Delivery, 7) // one statement, one created_at
		for i := range batch {
			batch[i] = placed(t, "ada", 100)
		}
		w.mustHandle(t, batch...)
		ids := make([]string, len(batch))
		for i, d := range batch {
			ids[i] = d.ID
		}
		slices.Sort(ids)
		want = append(want, ids...)
	}
	slices.Reverse(want)
	for _, limit := range []string{"1", "3", "34", "35", "100"} {
		var got []string
		path := "/customers/ada/bonus?limit=" + limit
		for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
			page := w.bonus(t, path+"&cursor="+cursor)
			if page.Balance != 35 || len(page.Entries) == 0 {
				t.Fatalf("limit %s: %+v", limit, page)
			}
			for _, e := range page.Entries {
				got = append(got, e.EventID)
			}
			cursor = page.NextCursor
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %s: %d entries %q, want %d", limit, len(got), got, len(want))
		}
	}
	if n := len(w.bonus(t, "/customers/ada/bonus").Entries); n != defaultLimit {
		t.Errorf("%d entries without a limit, want %d", n, defaultLimit)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, fields := range map[string][]string{
		"/customers/a%20b/bonus":                                   {"id"},
		"/customers/a%2Fb/bonus":                                   {"id"},
		"/customers/a%00/bonus":                                    {"id"},
		"/customers/%2541/bonus":                                   {"id"}, // %41, not A
		"/customers/%C3%A9/bonus":                                  {"id"},
		"/customers/" + strings.Repeat("x", 65) + "/bonus":         {"id"},
		"/customers/ada/bonus?limit=0":                             {"limit"},
		"/customers/ada/bonus?limit=101":                           {"limit"},
		"/customers/ada/bonus?limit=x&cursor=%21&page=2":           {"cursor", "limit", "page"},
		"/customers/ada/bonus?limit=1&limit=2":                     {"limit"},
		"/customers/ada/bonus?cursor=AAAA":                         {"cursor"},
		"/customers/ada/bonus?cursor=" + strings.Repeat("_", 16):   {"cursor"},
		"/customers/a!/bonus?cursor=" + newest.String():            {"id", "cursor"},
		"/customers/ada/bonus?cursor=AAAAAAAAAAAAYQBi":             {"cursor"}, // a NUL
		"/customers/ada/bonus?cursor=" + strings.Repeat("A", 4000): {"cursor"},
		"/customers/ada/bonus?limit=%zz":                           nil,
	} {
		rec := w.get(t, path)
		var p problem.Problem
		err := json.Unmarshal(rec.Body.Bytes(), &p)
		var got []string
		for _, f := range p.Errors {
			got = append(got, f.Field)
		}
		if err != nil || rec.Code != http.StatusBadRequest || rec.Header().Get("Content-Type") != "application/problem+json" ||
			p.Status != rec.Code || !slices.Equal(got, fields) {
			t.Errorf("GET %.80s = %d %s; want 400 for %q", path, rec.Code, rec.Body, fields)
		}
	}
}

func TestGetBonusWithoutPostgres(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, `alter table bonus_ledger rename to elsewhere`)
	missing := w.get(t, "/customers/ada/bonus")
	w.url = "postgres://bonus:bonus@127.0.0.1:1/nowhere"
	w.store = w.newStore(t, nil)
	gone := w.get(t, "/customers/ada/bonus")
	for _, rec := range []*httptest.ResponseRecorder{missing, gone} {
		if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") != "2" ||
			rec.Header().Get("Content-Type") != "application/problem+json" || strings.Contains(rec.Body.String(), "bonus_ledger") ||
			strings.Contains(rec.Body.String(), "127.0.0.1") {
			t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
		}
	}
}

// The look at an account uses the ledger's index, however much is in it.
func TestAccountUsesItsIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(t, `
		insert into bonus_ledger (event_id, order_id, customer_id, points, created_at)
		select 'e' || i, gen_random_uuid(), 'c-' || i % 100, 1, now() - i * interval '1 second' from generate_series(1, 20000) i`)
	w.exec(t, `insert into bonus_accounts select customer_id, sum(points) from bonus_ledger group by customer_id`)
	w.exec(t, `analyze bonus_ledger, bonus_accounts`)
	var before, after int64
	const scans = `select seq_scan from pg_stat_user_tables where relname = 'bonus_ledger'`
	if err := w.owner.QueryRow(t.Context(), scans).Scan(&before); err != nil {
		t.Fatal(err)
	}
	page := w.bonus(t, "/customers/c-7/bonus?limit=100")
	page = w.bonus(t, "/customers/c-7/bonus?limit=100&cursor="+page.NextCursor)
	if page.NextCursor != "" || len(page.Entries) != 100 || page.Balance != 200 {
		t.Errorf("second page: %d entries, balance %d, next %q", len(page.Entries), page.Balance, page.NextCursor)
	}
	w.store.pool.Close() // sends its statistics
	if err := w.owner.QueryRow(t.Context(), scans).Scan(&after); err != nil || after != before {
		t.Errorf("%d scans of the whole ledger, %v; want none", after-before, err)
	}
}
