package servertest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/localserver/servertest"
	"example.com/orderfanout/migrations"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestDatabase(t *testing.T) {
	t.Parallel()
	first, second := servertest.Database(t), servertest.Database(t)
	if first == second {
		t.Fatalf("two databases have one URL, %s", first)
	}
	conn, err := pgx.Connect(t.Context(), servertest.DatabaseAs(t, first, "bonus"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `insert into processed (consumer, event_id) values ('bonus', 'e')`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `delete from bonus_ledger`); err == nil {
		t.Error("bonus may delete from its ledger")
	}
	pool, err := pgxpool.New(t.Context(), servertest.DatabaseAs(t, second, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := migrations.Check(t.Context(), pool); err != nil {
		t.Error(err)
	}
	var limited int
	err = pool.QueryRow(t.Context(), `select count(*) from pg_roles where rolconnlimit >= 0`).Scan(&limited)
	if err != nil || limited != 0 {
		t.Errorf("roles with a connection limit: %d, %v; want none", limited, err)
	}
}

func TestRedis(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, "--maxmemory", "10mb")
	client := redis.NewClient(server.Options())
	defer client.Close()
	got, err := client.ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil || got["maxmemory"] != "10485760" {
		t.Errorf("maxmemory = %v, %v", got, err)
	}
}
