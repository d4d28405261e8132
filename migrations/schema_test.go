package migrations_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/outbox"
	"example.com/orderfanout/processed"
)

// What the packages say that they need is what the migrations have made.
func TestSchemasOfThePackages(t *testing.T) {
	t.Parallel()
	conn := servertest.Connect(t, servertest.Database(t))
	if _, err := conn.Exec(t.Context(), "create schema alone; set search_path = alone; "+outbox.Schema+processed.Schema); err != nil {
		t.Fatal(err)
	}
	alone, migrated := describe(t, conn, "alone"), describe(t, conn, "public")
	if len(alone) < 30 || !slices.Equal(alone, migrated) {
		t.Errorf("outbox.Schema and processed.Schema make\n%s\nthe migrations\n%s", strings.Join(alone, "\n"), strings.Join(migrated, "\n"))
	}
}

// describe lists the columns, indexes and constraints of the packages' tables in a schema.
func describe(t *testing.T, conn *pgx.Conn, schema string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		with tables as (
		    select c.oid, c.relname from pg_class c
		    where c.relnamespace = $1::regnamespace and c.relname in ('outbox', 'outbox_relay', 'processed')
		)
		select concat_ws(' ', relname, attnum, attname, format_type(atttypid, atttypmod), attcollation::regcollation, attnotnull, attidentity,
		                 pg_get_expr(adbin, adrelid))
		from tables join pg_attribute a on attrelid = oid left join pg_attrdef on adrelid = tables.oid and adnum = attnum
		where attnum > 0 and not attisdropped
		union all
		select replace(pg_get_indexdef(indexrelid), $1 || '.', '') from tables join pg_index on indrelid = oid
		union all
		select concat_ws(' ', relname, conname, pg_get_constraintdef(c.oid)) from tables join pg_constraint c on conrelid = tables.oid
		order by 1`, schema)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return lines
}
