package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/orderfanout/broker/redisstream"
)

// fanout runs the operator's tool as its own users, and returns what it printed.
func (s *system) fanout(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(bin, "fanout"), args...)
	cmd.Env = []string{
		"REDIS_URL=redis://fanout:fanout@" + s.redis.Addr(),
		"DATABASE_URL=" + s.postgres.DatabaseURL(dbName, "fanout", "fanout"),
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *system) mustFanout(args ...string) string {
	s.Helper()
	out, err := s.fanout(args...)
	if err != nil {
		s.Fatalf("fanout %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TestRedrive: a mail that was refused for good is sent once when its dead letter is redriven, twice over; bonus and analytics
// do not change.
func TestRedrive(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("bonus", "b")
	mailer := s.run("mailer", "m")
	s.refuse.Store(true)
	o := s.mustPost(orders, "c-1", 3)
	var letters []redisstream.DeadLetter
	s.eventually("the refused mail is a dead letter", func() bool {
		if err := json.Unmarshal([]byte(s.mustFanout("dead", "list", "--group", "mailer", "--json")), &letters); err != nil {
			t.Fatal(err)
		}
		return len(letters) == 1
	})
	if l := letters[0]; l.Reason != "permanent" || !strings.Contains(l.Error, "550") || strings.Contains(l.Error, "c-1@example.com") {
		t.Errorf("dead letter %+v: want permanent with the server's reply and no address", l)
	}
	id := letters[0].ID
	if out := s.mustFanout("dead", "list", "-g", "mailer"); !strings.Contains(out, o.ID) {
		t.Errorf("the list does not name the order:\n%s", out)
	}
	if out := s.mustFanout("dead", "show", "-g", "mailer", id); !strings.Contains(out, "order.placed.v1") {
		t.Errorf("show has no fields:\n%s", out)
	}
	if out := s.mustFanout("lag"); !strings.Contains(out, "mailer") {
		t.Errorf("lag shows no mailer:\n%s", out)
	}
	s.refuse.Store(false)
	s.mustFanout("dead", "redrive", "-g", "mailer", "--id", id, "--dry-run")
	if out, err := s.fanout("dead", "redrive", "-g", "mailer", "--id", id); err == nil { // no answer to its question
		t.Errorf("redriven without a yes:\n%s", out)
	}
	s.mustFanout("dead", "redrive", "-g", "mailer", "--id", id, "--yes")
	if out, err := s.fanout("dead", "redrive", "-g", "mailer", "--id", id, "--yes"); err == nil || !strings.Contains(out, "no such dead letter") {
		t.Errorf("the second redrive: %v\n%s", err, out)
	}
	s.balanced(analytics, 0)
	if !mailer.log.has(`"outcome":"done"`, `"attempt":1`) {
		t.Errorf("the redriven entry does not start afresh:\n%s", mailer.log)
	}
	if out, err := s.fanout("dead", "list", "-g", "sms"); err == nil || !strings.Contains(out, "mailer, bonus, analytics") {
		t.Errorf("a wrong group: %v\n%s", err, out)
	}
}

// TestRepublish: Redis has lost everything. The stream is rebuilt from the outbox for bonus, which finds all done, and for
// analytics, whose sums are gone and come back; no mail goes out again.
func TestRepublish(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	orders, analytics := s.run("orders", "o", "REPUBLISH_WINDOW=1ms"), s.run("analytics", "a")
	s.run("bonus", "b")
	s.run("mailer", "m")
	for i := range 30 {
		s.mustPost(orders, fmt.Sprintf("c-%d", i%4), 1+i)
	}
	s.balanced(analytics, 0)
	window := s.count(`select count(*) from outbox where published_at >= (select max(published_at) from outbox) - interval '1 ms'`)
	if err := s.client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	s.eventually("the groups are made again", s.settled)
	if out := s.mustFanout("republish", "--since", "1h", "--yes"); !strings.Contains(out, "30 of 30") {
		t.Errorf("republish says:\n%s", out)
	}
	s.balanced(analytics, int(window)) // the relay sends its window again, to the mailer too
	if out, err := s.fanout("republish"); err == nil || !strings.Contains(out, "--since") {
		t.Errorf("without --since: %v\n%s", err, out)
	}
}
