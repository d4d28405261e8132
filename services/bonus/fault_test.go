package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orderfanout/broker"
)

// What real trouble with Postgres means, and that it leaves nothing behind when it is over.
func TestTrouble(t *testing.T) {
	t.Parallel()
	short := func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["lock_timeout"] = "50ms" }
	for name, c := range map[string]struct {
		begin, end string // statements of the owner
		deferred   bool   // else unavailable
	}{
		"privilege taken away": {`revoke insert on bonus_ledger from bonus`, `grant insert on bonus_ledger to bonus`, false},
		"table renamed":        {`alter table bonus_accounts rename to elsewhere`, `alter table elsewhere rename to bonus_accounts`, false},
		"column renamed":       {`alter table processed rename event_id to elsewhere`, `alter table processed rename elsewhere to event_id`, false},
		"read-only": {
			`do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$`,
			`do $$ begin execute format('alter database %I reset default_transaction_read_only', current_database()); end $$`, false,
		},
		"too many connections": {
			`do $$ begin execute format('alter database %I connection limit 0', current_database()); end $$`,
			`do $$ begin execute format('alter database %I connection limit -1', current_database()); end $$`, false,
		},
		"no new sessions": {
			`do $$ begin execute format('revoke connect on database %I from public', current_database()); end $$`,
			`do $$ begin execute format('grant connect on database %I to public', current_database()); end $$`, false,
		},
		"account locked": {`begin; insert into bonus_accounts values ('ada', 0); select * from bonus_accounts for update`, `rollback`, true},
		"marker locked":  {`begin; lock table processed in share row exclusive mode`, `rollback`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.store = w.newStore(t, short)
			conn, err := w.owner.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			if _, err := conn.Conn().PgConn().Exec(t.Context(), c.begin).ReadAll(); err != nil {
				t.Fatal(err)
			}
			d := placed(t, "ada", 700)
			err = w.handle(d)
			if after, deferred := broker.DeferredFor(err); deferred != c.deferred || broker.IsUnavailable(err) == c.deferred ||
				deferred && (after < 50*time.Millisecond || after > 200*time.Millisecond) {
				t.Errorf("err = %v; want it deferred by 50 to 200ms: %t", err, c.deferred)
			}
			if _, err := conn.Conn().PgConn().Exec(t.Context(), c.end).ReadAll(); err != nil {
				t.Fatal(err)
			}
			w.store.pool.Reset()
			w.mustHandle(t, d)
			if d.IsDuplicate() || w.balances(t)["ada"] != 7 {
				t.Errorf("afterwards: duplicate %t, balances %v", d.IsDuplicate(), w.balances(t))
			}
		})
	}
}

// The service's sessions are ended in the middle: the work goes on, and is not done twice.
func TestSessionsTerminated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ds := make([]*broker.Delivery, 300)
	for i := range ds {
		ds[i] = placed(t, customer(i%7), 100)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, d := range ds {
			for {
				err := w.handle(d)
				if err == nil {
					break
				}
				if !broker.IsUnavailable(err) {
					t.Errorf("err = %v, want Unavailable", err)
					return
				}
			}
		}
	}()
	for range 15 {
		w.exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and usename = 'bonus'`)
		w.exec(t, `select pg_sleep(0.05)`)
	}
	<-done
	if n := w.rows(t, "bonus_ledger"); n != len(ds) {
		t.Errorf("%d ledger rows, want %d", n, len(ds))
	}
	w.balances(t)
}

func TestPostgresAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.url = "postgres://bonus:bonus@127.0.0.1:1/nowhere"
	w.store = w.newStore(t, nil)
	if err := w.handle(placed(t, "ada", 100)); !broker.IsUnavailable(err) {
		t.Errorf("err = %v, want Unavailable", err)
	}
}

// With all connections in use, an event waits and is not to blame.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.store = w.newStore(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	conn, err := w.store.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	d := placed(t, "ada", 100)
	if err := (&handler{store: w.store}).handle(ctx, []*broker.Delivery{d}); !broker.IsUnavailable(err) {
		t.Errorf("err = %v, want Unavailable", err)
	}
	conn.Release()
	w.mustHandle(t, d)
}

// Codes that are hard to bring about.
func TestFaultOf(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]fault{
		"40001": busy, "40P01": busy, "55P03": busy, "0A000": busy, "26000": busy, "42P05": busy,
		"08006": away, "25006": away, "28P01": away, "3D000": away, "42501": away, "42P01": away, "42703": away,
		"53100": away, "53300": away, "57014": away, "57P01": away, "57P03": away, "58030": away, "XX000": away,
		"22003": mistake, "22021": mistake, "23505": mistake, "23514": mistake, "54000": mistake,
	} {
		if got := faultOf(fmt.Errorf("credit: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s is %d, want %d", code, got, want)
		}
	}
	if got := faultOf(errors.New("broken pipe")); got != away {
		t.Errorf("an error without a code is %d, want %d", got, away)
	}
}
