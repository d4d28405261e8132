// Package deploy_test holds users.acl to what the services do, and to what they must not.
package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/localserver/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// withUsers starts a Redis with the users of users.acl, and returns how to be one of them. The default user keeps its
// rights, for the test.
func withUsers(t *testing.T) (admin *redis.Client, as func(user string) *redis.Options) {
	t.Helper()
	server := servertest.Redis(t)
	admin = redis.NewClient(server.Options())
	t.Cleanup(func() { _ = admin.Close() })
	file, err := os.ReadFile("users.acl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		words := strings.Fields(line) // user NAME RULE…
		if words[1] == "default" {
			continue
		}
		args := []any{"ACL", "SETUSER"}
		for _, w := range words[1:] {
			args = append(args, w)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("user %s: %v", words[1], err)
		}
	}
	return admin, func(user string) *redis.Options {
		opts := server.Options()
		opts.Username, opts.Password = user, user
		return opts
	}
}

// Everything that the engine does, it may do as the service's own user, and nothing is asked for in vain.
func TestServicesMayWork(t *testing.T) {
	t.Parallel()
	admin, as := withUsers(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))

	publisher, err := redisstream.NewPublisher(as("orders"), redisstream.PublisherConfig{Stream: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	var events []broker.Event
	for i, kind := range []string{"good", "bad", "good", "flaky"} {
		events = append(events, broker.Event{ID: fmt.Sprintf("e-%d", i), Type: kind, Time: time.Now().Add(-48 * time.Hour)})
	}
	if _, err := publisher.Publish(ctx, events, broker.Position{}); err != nil {
		t.Fatalf("publish: %v", err)
	}
	if err := admin.XAdd(ctx, &redis.XAddArgs{Stream: "orders", Values: []string{"x", "y"}}).Err(); err != nil {
		t.Fatal(err)
	}

	groups := []string{"mailer", "bonus", "analytics"}
	var running sync.WaitGroup
	for _, group := range groups {
		consumer, err := redisstream.NewConsumer(as(group), redisstream.Config{
			Stream: "orders", Group: group, Name: "one", RetryMin: 10 * time.Millisecond, RetryMax: 10 * time.Millisecond,
			ClaimIdle: 200 * time.Millisecond, ConsumerExpiry: 200 * time.Millisecond, Logger: log,
			Handle: func(_ context.Context, d *broker.Delivery) error {
				switch {
				case d.Type == "bad":
					return broker.Permanent(errors.New("never"))
				case d.Type == "flaky" && d.Attempt < 3:
					return errors.New("not yet")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = consumer.Run(ctx) }) // always nil
	}
	defer running.Wait()
	defer cancel()
	deadline := time.Now().Add(30 * time.Second)
	for _, group := range groups {
		for {
			pending, err := admin.XPending(ctx, "orders", group).Result()
			dead := admin.XLen(ctx, redisstream.DeadKey("orders", group)).Val()
			if err == nil && pending.Count == 0 && dead == 2 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("group %s: pending %v, %v; %d dead letters, want 2; denied: %v", group, pending, err, dead, denied(t, admin))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}

	trimming := redis.NewClient(as("orders"))
	defer trimming.Close()
	trimmer, err := redisstream.NewTrimmer(trimming, redisstream.TrimConfig{Stream: "orders", Groups: groups, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := trimmer.Trim(ctx); err != nil {
		t.Errorf("trim: %v", err)
	}
	if n := trimmer.Status().Removed; n != 4 {
		t.Errorf("trimmed %d entries, want 4", n)
	}

	operator := redis.NewClient(as("fanout"))
	defer operator.Close()
	letters := redisstream.NewDeadLetters(operator, "orders", "bonus")
	list, err := letters.List(ctx, "", 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("list dead letters: %v, %v", list, err)
	}
	if _, err := letters.Redrive(ctx, list[0].ID); err != nil {
		t.Errorf("redrive: %v", err)
	}
	if err := letters.Discard(ctx, list[1].ID); err != nil {
		t.Errorf("discard: %v", err)
	}
	cancel()
	running.Wait() // the drain has its commands too
	if d := denied(t, admin); len(d) > 0 {
		t.Errorf("denied: %v", d)
	}
}

// What one user spoils cannot be another's.
func TestServicesMayDoNothingElse(t *testing.T) {
	t.Parallel()
	_, as := withUsers(t)
	everybody := []string{
		"FLUSHALL", "CONFIG GET maxmemory", "KEYS *", "SAVE", "SHUTDOWN", "ACL LIST", "DEL orders", "XDEL cache:order:1 1-1",
		"SET orders x", "XGROUP DESTROY orders other", "XGROUP SETID orders other 0", "RENAME orders other", "EXPIRE orders 1", "GET other", "SET other x", "PUBLISH c m", "REPLICAOF no one", "CLIENT KILL TYPE normal", "CLIENT PAUSE 1",
		"EVAL return(redis.call('DEL','orders')) 1 orders", "EVAL return(redis.call('SET','other','x')) 0",
	}
	only := map[string][]string{
		"orders":    {"XREADGROUP GROUP bonus x STREAMS orders >", "XACK orders bonus 1-1", "XCLAIM orders bonus x 0 1-1", "GET mailer:sent:1", "HGETALL analytics:{stats}:totals", "XADD {orders}:dead:bonus * x y"},
		"mailer":    {"XADD orders * x y", "XTRIM orders MAXLEN 0", "XDEL orders 1-1", "XADD {orders}:dead:bonus * x y", "XRANGE {orders}:dead:bonus - +", "HDEL {orders}:fail:bonus 1-1", "GET cache:order:1", "HGETALL analytics:{stats}:totals"},
		"bonus":     {"XADD orders * x y", "XTRIM orders MAXLEN 0", "XDEL orders 1-1", "XADD {orders}:dead:mailer * x y", "DEL mailer:sent:1", "HGETALL analytics:{stats}:totals", "XDEL {orders}:dead:bonus 1-1"},
		"analytics": {"XADD orders * x y", "XTRIM orders MAXLEN 0", "XADD {orders}:dead:mailer * x y", "DEL mailer:sent:1", "UNLINK orders", "HSET mailer:sent:1 x y"},
		"fanout":    {"XTRIM {orders}:dead:bonus MAXLEN 0", "DEL mailer:sent:1", "GET cache:order:1", "XADD mailer:sent:1 * x y", "XDEL {orders}:fail:bonus 1-1"},
	}
	for user, commands := range only {
		client := redis.NewClient(as(user))
		for _, command := range append(commands, everybody...) {
			if user == "orders" && command == "GET cache:order:1" {
				continue
			}
			var args []any
			for _, word := range strings.Fields(command) {
				args = append(args, word)
			}
			if err := client.Do(t.Context(), args...).Err(); !refused(err) {
				t.Errorf("%s: %s: %v, want a refusal", user, command, err)
			}
		}
		_ = client.Close()
	}
}

// refused reports whether the users' rights are the reason of err. Redis says so in three ways.
func refused(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "NOPERM") || strings.Contains(err.Error(), "ACL failure") ||
		strings.Contains(err.Error(), "The user executing the script can't"))
}

// denied returns what ACL LOG has noted.
func denied(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	entries, err := admin.ACLLog(t.Context(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Username+" "+e.Reason+" "+e.Object)
	}
	return out
}
