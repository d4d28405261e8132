package e2e

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/orderfanout/internal/link"
	"example.com/orderfanout/internal/smtpsink"
)

// TestF45AcceptedButNotTold: the server takes a mail and the connection breaks before it says so. There is a copy for each
// break and no more, each with the same Message-ID, and an end to it; nobody else gets a mail twice.
func TestF45AcceptedButNotTold(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	var twice, always atomic.Int64
	smtp := s.smtp(func(_ int, to string, take func() error) error {
		err := take()
		switch {
		case err == nil && to == "twice@example.com" && twice.Add(1) <= 2:
			return smtpsink.ErrCut
		case err == nil && to == "always@example.com":
			always.Add(1)
			return smtpsink.ErrCut
		}
		return err
	})
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("bonus", "b")
	s.run("mailer", "m", smtp, "MAX_ATTEMPTS=4", "RETRY_MIN=50ms")
	for _, customer := range []string{"c-1", "twice", "c-2", "always", "c-3"} {
		s.mustPost(orders, customer, 1)
	}
	s.balanced(analytics, 2+3)
	if twice.Load() != 3 || always.Load() != 4 {
		t.Errorf("%d and %d copies, want one a break: 3 and 4", twice.Load(), always.Load())
	}
	if n := s.client.XLen(context.Background(), "{orders}:dead:mailer").Val(); n != 1 {
		t.Errorf("%d dead letters, want the one that never had an answer", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, customer := range []string{"c-1", "c-2", "c-3"} {
		if n := s.mails[customer+"@example.com"]; n != 1 {
			t.Errorf("%d mails to %s, want 1", n, customer)
		}
	}
}

// TestF45KilledAfterTheAnswer: the mailer is killed between the server's yes and its acknowledgement: no second mail.
func TestF45KilledAfterTheAnswer(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("bonus", "b")
	mailer := s.run("mailer", "m", "ACK_DELAY=20s")
	s.mustPost(orders, "c-1", 1)
	s.eventually("the mail is noted as sent", func() bool {
		keys := s.client.Keys(context.Background(), "mailer:sent:*").Val()
		return len(keys) == 1 && s.client.Get(context.Background(), keys[0]).Val() == "sent"
	})
	s.kill(mailer)
	mailer = s.run("mailer", "other")
	s.balanced(analytics, 0)
	s.blameless()
	if !mailer.log.has(`"outcome":"duplicate"`) {
		t.Errorf("no line says duplicate:\n%s", mailer.log)
	}
}

// TestF44ConnectionsThatBreak: connections break while nobody uses them, and where the mailer takes its leave. That is no
// failure: nothing is counted, delayed or sent twice.
func TestF44ConnectionsThatBreak(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	smtp := s.smtp(func(_ int, _ string, take func() error) error { return take() })
	l := s.link(strings.TrimPrefix(smtp, "SMTP_URL=smtp://"))
	var leaves atomic.Int64
	l.Judge(func(request []byte) link.Fate {
		leave := bytes.Contains(request, []byte("QUIT"))
		if leave {
			leaves.Add(1)
		}
		return link.Fate{DropAnswer: leave}
	})
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("bonus", "b")
	mailer := s.run("mailer", "m", "SMTP_URL=smtp://"+l.Addr())
	for i := range 12 {
		begun := time.Now()
		s.mustPost(orders, "c-1", 1)
		s.eventually("its mail is done", func() bool { n, _ := s.mailCount(); return n == i+1 && s.pending("mailer") == 0 })
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("mail %d took %s", i, took)
		}
		l.Cut()
		l.Mend()
	}
	s.postMany(orders, 20) // so that some connections are kept
	s.balanced(analytics, 0)
	s.blameless()
	s.term(mailer, 10*time.Second)
	if mailer.log.has(`"outcome":"retry"`) || mailer.log.has(`"attempt":2`) {
		t.Errorf("a broken connection was counted:\n%s", mailer.log)
	}
	if leaves.Load() == 0 {
		t.Error("the mailer never took its leave")
	}
	s.mustPost(orders, "c-1", 1)
	s.run("mailer", "m")
	s.balanced(analytics, 0)
}

// TestF53StopWhileSending: a mailer that is told to stop in the middle of slow mails finishes them and ends with 0; told twice
// it ends at once, and what it left is done by the next.
func TestF53StopWhileSending(t *testing.T) {
	t.Parallel()
	long(t)
	s := newSystem(t)
	var slow atomic.Bool
	ended := make(chan bool)
	end := sync.OnceFunc(func() { close(ended) })
	t.Cleanup(end)
	var begun atomic.Int64
	smtp := s.smtp(func(_ int, to string, take func() error) error {
		begun.Add(1)
		switch {
		case to == "stuck@example.com" && slow.Load():
			<-ended
			return smtpsink.ErrCut
		case slow.Load():
			time.Sleep(2 * time.Second) // the server's own
		}
		return take()
	})
	orders, analytics := s.run("orders", "o"), s.run("analytics", "a")
	s.run("bonus", "b")
	mailer := s.run("mailer", "m", smtp)
	slow.Store(true)
	s.postMany(orders, 8)
	s.eventually("mails are on their way", func() bool { return begun.Load() > 0 })
	s.term(mailer, 10*time.Second)
	s.mustPost(orders, "stuck", 1)
	before := begun.Load()
	mailer = s.run("mailer", "m", smtp)
	s.eventually("a mail is stuck", func() bool { return begun.Load() > before && s.pending("mailer") > 0 })
	s.eventually("only that one is left", func() bool { n, _ := s.mailCount(); return n == 8 })
	s.term2(mailer)
	slow.Store(false)
	end()
	s.run("mailer", "m2", smtp)
	s.balanced(analytics, 0)
	s.blameless()
}
