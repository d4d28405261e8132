package migrations_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"example.com/orderfanout/internal/localserver/servertest"
)

// TestRolesMayDoNothingElse: a service reads and writes what its work needs, owns nothing, and cannot change the schema.
func TestRolesMayDoNothingElse(t *testing.T) {
	t.Parallel()
	owner := servertest.Database(t)
	everybody := []string{
		"create table mine (id int)", "create schema mine", "alter table orders add column note text", "drop table orders", "truncate outbox",
		"delete from orders", "update orders set total = 0", "delete from bonus_ledger", "update bonus_ledger set points = 0",
		"delete from bonus_accounts", "create role other", "select rolpassword from pg_authid", "copy orders to program 'cat'",
		"select pg_read_file('postgresql.conf')", "insert into schema_migrations values (9, false)",
	}
	for role, only := range map[string][]string{
		"orders": {"select * from bonus_accounts", "select * from bonus_ledger", "select * from processed", "insert into bonus_accounts values ('c', 1)"},
		"bonus": {"select * from orders", "select * from order_items", "select * from idempotency_keys", "select * from outbox",
			"update outbox_relay set holder = 'bonus'", "insert into outbox (event_id) values ('x')"},
		"fanout": {"insert into orders (id) values (gen_random_uuid())", "insert into bonus_accounts values ('c', 1)", "insert into processed values ('bonus', 'x')",
			"delete from outbox", "delete from idempotency_keys", "update outbox_relay set holder = 'fanout'", "update outbox set published_at = null", "insert into outbox (event_id) values ('x')"},
	} {
		conn := connect(t, servertest.DatabaseAs(t, owner, role))
		for _, statement := range append(only, everybody...) {
			_, err := conn.Exec(t.Context(), statement)
			if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "42501" {
				t.Errorf("%s: %s: %v, want insufficient privilege (42501)", role, statement, err)
			}
		}
		var owns int
		err := conn.QueryRow(t.Context(), `select count(*) from pg_class where relowner = (select oid from pg_roles where rolname = $1)`, role).Scan(&owns)
		if err != nil || owns != 0 {
			t.Errorf("%s owns %d tables and indexes, %v", role, owns, err)
		}
	}
}
