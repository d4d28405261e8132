package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/link"
	"example.com/orderfanout/internal/smtpsink"
)

// What the tests of faults have in common.

var groups = []string{"mailer", "bonus", "analytics"}

// fleet is one process of each service.
type fleet struct{ orders, bonus, analytics, mailer *instance }

func (f fleet) all() []*instance       { return []*instance{f.orders, f.bonus, f.analytics, f.mailer} }
func (f fleet) consumers() []*instance { return f.all()[1:] }

// launchAll starts one process of each service, each with the given settings.
func (s *system) launchAll(env ...string) fleet {
	s.Helper()
	return fleet{s.launch("orders", "o", env...), s.launch("bonus", "b", env...), s.launch("analytics", "a", env...), s.launch("mailer", "m", env...)}
}

// runAll is launchAll, and waits until all are ready.
func (s *system) runAll(env ...string) fleet {
	s.Helper()
	f := s.launchAll(env...)
	for _, in := range f.all() {
		s.eventually(in.service+" is ready", in.ready)
	}
	return f
}

// within is eventually with a limit of its own, and returns how long it took.
func (s *system) within(limit time.Duration, what string, ok func() bool) time.Duration {
	s.Helper()
	begun := time.Now()
	for !ok() {
		if time.Since(begun) > limit {
			s.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begun)
}

// receive is eventually for a channel.
func (s *system) receive(what string, from <-chan bool) {
	s.Helper()
	select {
	case <-from:
	case <-time.After(40 * time.Second):
		s.Fatalf("not within 40s: %s", what)
	}
}

// link puts a link in front of a server; redisVia and databaseVia are the settings of a service that goes through it.
func (s *system) link(target string) *link.Link {
	s.Helper()
	l, err := link.New(target)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = l.Close() })
	return l
}

func redisVia(l *link.Link, service string) string {
	return "REDIS_URL=redis://" + service + ":" + service + "@" + l.Addr()
}

func (s *system) postgresAddr() string { return "127.0.0.1:" + strconv.Itoa(s.postgres.Port()) }

func databaseVia(l *link.Link, service string) string {
	return "DATABASE_URL=postgres://" + service + ":" + service + "@" + l.Addr() + "/" + dbName + "?sslmode=disable"
}

// smtp starts another mail server, with a will of its own: on decides about the n-th mail, and calls take where the mail
// is taken. It returns the mailer's setting.
func (s *system) smtp(on func(n int, to string, take func() error) error) string {
	s.Helper()
	sink, err := smtpsink.Start(smtpsink.Config{OnData: func(n int, from string, to []string, data []byte) error {
		return on(n, to[0], func() error { return s.onMail(n, from, to, data) })
	}})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = sink.Close() })
	return "SMTP_URL=" + sink.URL()
}

// ghost takes n unread entries of the group, as a worker does that dies the next moment.
func (s *system) ghost(group string, n int) {
	s.Helper()
	streams, err := s.client.XReadGroup(context.Background(), &redis.XReadGroupArgs{
		Group: group, Consumer: "ghost", Streams: []string{"orders", ">"}, Count: int64(n), Block: -1}).Result()
	if err != nil || len(streams) != 1 || len(streams[0].Messages) != n {
		s.Fatalf("the ghost of %s got %v, %v, want %d entries", group, streams, err, n)
	}
}

// again adds entries with the same fields as those of the ids, under new ids.
func (s *system) again(messages ...redis.XMessage) {
	s.Helper()
	for _, m := range messages {
		s.addAs("*", m)
	}
}

func (s *system) addAs(id string, m redis.XMessage) {
	s.Helper()
	if err := s.client.XAdd(context.Background(), &redis.XAddArgs{Stream: "orders", ID: id, Values: m.Values}).Err(); err != nil {
		s.Fatal(err)
	}
}

func (s *system) entries() []redis.XMessage {
	return s.client.XRange(context.Background(), "orders", "-", "+").Val()
}

// blameless wants no dead letter and no failure noted in any group.
func (s *system) blameless() {
	s.Helper()
	for _, g := range groups {
		if n := s.client.Exists(context.Background(), "{orders}:dead:"+g, "{orders}:fail:"+g).Val(); n != 0 {
			s.Errorf("%s: an entry is blamed", g)
		}
	}
}

// load places orders with one client, one every so often, until stop is called, which returns how many were placed and how
// long the slowest took. Each must be placed.
func (s *system) load(orders *instance, every time.Duration) (stop func() (placed int, slowest time.Duration)) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	var placed int
	var slowest time.Duration
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			begun := time.Now()
			if _, _, err := s.post(orders, fmt.Sprintf("c-%d", placed%7), 1); err != nil {
				s.Errorf("order %d of the load: %v", placed, err)
				return
			}
			placed++
			slowest = max(slowest, time.Since(begun))
		}
	})
	var once sync.Once
	s.Cleanup(func() { once.Do(func() { close(done) }); wg.Wait() })
	return func() (int, time.Duration) {
		once.Do(func() { close(done) })
		wg.Wait()
		return placed, slowest
	}
}

// postMany places n orders with eight clients.
func (s *system) postMany(orders *instance, n int) {
	s.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				if _, _, err := s.post(orders, fmt.Sprintf("c-%d", i%7), 1+i%5); err != nil {
					s.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// metric returns a figure of /metrics: of the first line that begins with name and has all the texts.
func (in *instance) metric(name string, texts ...string) (float64, bool) {
	res, err := http.Get(in.url + "/metrics")
	if err != nil {
		return 0, false
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, false
	}
next:
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, name+" ") && !strings.HasPrefix(line, name+"{") {
			continue
		}
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		return v, err == nil
	}
	return 0, false
}

// calm notes how much each process has logged and computed. What it returns wants them to have done next to nothing since.
func (s *system) calm(instances ...*instance) (check func()) {
	s.Helper()
	begun := time.Now()
	lines, cpu := map[*instance]int{}, map[*instance]time.Duration{}
	for _, in := range instances {
		lines[in], cpu[in] = strings.Count(in.log.String(), "\n"), s.cpu(in)
	}
	return func() {
		s.Helper()
		took := time.Since(begun)
		for _, in := range instances {
			if n := strings.Count(in.log.String(), "\n") - lines[in]; n > 15 {
				s.Errorf("%s logged %d lines in %s:\n%s", in.service, n, took, in.log)
			}
			if busy := s.cpu(in) - cpu[in]; busy > took/10+300*time.Millisecond {
				s.Errorf("%s computed for %s in %s", in.service, busy, took)
			}
		}
	}
}

// cpu is the time that the process has computed (https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html), 0 where the
// system does not tell.
func (s *system) cpu(in *instance) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", in.Pid()))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// complaints are the lines of a log above info.
func (in *instance) complaints() (lines []string) {
	for line := range strings.Lines(in.log.String()) {
		if strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// long leaves a test out of make test, which has five minutes for all; make proof runs it.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: make proof runs it")
	}
}
