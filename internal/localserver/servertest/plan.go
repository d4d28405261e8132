package servertest

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Plan returns the plan that Postgres makes for a statement, a line each. args is what stands for its parameters, as in EXECUTE; "" where it has
// none.
func Plan(t testing.TB, databaseURL, statement, args string) string {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	explained := statement
	if args != "" {
		if _, err := conn.Exec(ctx, "prepare explained as "+statement); err != nil {
			t.Fatal(err)
		}
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
