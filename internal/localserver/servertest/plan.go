package servertest

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Connect returns a connection that lasts as long as the test.
func Connect(t testing.TB, databaseURL string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Plan returns the plan that Postgres makes for a statement, a line each. args is what stands for its parameters, as in EXECUTE; "" where it has
// none.
func Plan(t testing.TB, conn *pgx.Conn, statement, args string) string {
	t.Helper()
	ctx := context.Background()
	explained := statement
	if args != "" {
		if _, err := conn.Exec(ctx, "prepare explained as "+statement); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = conn.Exec(ctx, "deallocate explained") }()
		explained = "execute explained(" + args + ")"
	}
	rows, err := conn.Query(ctx, "explain (costs off) "+explained, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
