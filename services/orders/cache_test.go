package main

import (
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/localserver/servertest"
)

func TestCache(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	db := redis.NewClient(server.Options())
	t.Cleanup(func() { db.Close() })
	s := startService(t, map[string]string{"REDIS_URL": server.URL()})
	want := s.post(201, goodOrder)
	path := want.Header.Get("Location")
	key := "cache:order:" + want.order(t).ID
	cached := func(how string) bool {
		t.Helper()
		a := s.get(200, path)
		if string(a.body) != string(want.body) {
			t.Fatalf("got  %s\nwant %s", a.body, want.body)
		}
		return a.Header.Get("X-Cache") == how
	}
	if !cached("miss") {
		t.Error("a hit before anybody asked")
	}
	// On a busy machine Redis may take longer than the cache waits.
	eventually(t, "a hit", func() bool { return cached("hit") })
	if ttl := db.TTL(t.Context(), key).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("it is kept for %s", ttl)
	}
	if v := db.Get(t.Context(), key).Val(); v != string(want.body) {
		t.Errorf("it keeps %s", v)
	}

	// What somebody else left there is not served.
	db.Set(t.Context(), key, "{", 0)
	cached("miss")
	eventually(t, "garbage is replaced", func() bool { return cached("hit") })
	db.Del(t.Context(), key)
	db.LPush(t.Context(), key, "x")
	for range 3 {
		cached("miss")
	}
	db.Del(t.Context(), key)

	// A cached order needs no database.
	eventually(t, "a hit", func() bool { return cached("hit") })
	s.exec(`alter table orders rename to gone`)
	eventually(t, "a hit without the table", func() bool { return s.do(http.MethodGet, path, "").StatusCode == 200 })
	s.exec(`alter table gone rename to orders`)

	// Without Redis, and with one that hangs, orders are taken and read all the same; afterwards it caches again.
	for what, trouble := range map[string]struct{ begin, end func() error }{
		"killed": {server.Kill, server.Restart},
		"frozen": {server.Pause, server.Resume},
	} {
		if err := trouble.begin(); err != nil {
			t.Fatal(what, err)
		}
		s.post(201, goodOrder)
		for range 20 {
			if !cached("miss") {
				t.Errorf("a hit from a Redis that is %s", what)
			}
		}
		if err := trouble.end(); err != nil {
			t.Fatal(what, err)
		}
		eventually(t, "a hit again", func() bool { return cached("hit") })
	}
	eventually(t, "all events are in the stream", func() bool { return s.count(`select count(*) from outbox where published_at is null`) == 0 })
}

// TestCacheThatHangs counts how often a Redis that takes connections and never answers is asked.
func TestCacheThatHangs(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			defer conn.Close()
		}
	}()
	t.Cleanup(func() { ln.Close() })
	c := newCache(&redis.Options{Addr: ln.Addr().String()}, discard)
	t.Cleanup(func() { c.close() })
	start := time.Now()
	const times = 500
	for range times {
		if c.get(t.Context(), uuid.New()) != nil {
			t.Fatal("it answered")
		}
		c.put(t.Context(), uuid.New(), []byte("{}"))
	}
	if most := 2 + 2*int64(time.Since(start)/cachePause); asked.Load() > most {
		t.Errorf("it was asked %d times in %s, want at most %d", asked.Load(), time.Since(start), most)
	}
}
