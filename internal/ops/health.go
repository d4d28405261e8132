package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// readyTimeout bounds each check.
	readyTimeout = 2 * time.Second
	// shownTimeout is how long /readyz waits for a check that is only shown: whoever asks with a short time-out of his own must
	// not take the service for unready because of it.
	shownTimeout = 300 * time.Millisecond
)

// Reason is an error that says why a check fails in words that anybody may read. /readyz shows no other text: of
// other errors it tells the kind, and the log the rest.
type Reason string

// Error returns the text.
func (r Reason) Error() string { return string(r) }

// Ready adds a check to /readyz. All checks run at once, each with two seconds; one that does not come back by then
// fails, and is not started again before it does. A check that fails with a [Reason], or an error that wraps one,
// is shown with its text.
func (s *Service) Ready(name string, f func(context.Context) error) {
	s.addCheck(&check{name: name, f: f})
}

// Show adds to /readyz the check of something without which the service does its job all the same: where it fails, its
// text is shown and the service stays ready.
func (s *Service) Show(name string, f func(context.Context) error) {
	s.addCheck(&check{name: name, f: f, shown: true})
}

func (s *Service) addCheck(c *check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks = append(s.checks, c)
}

// check is one check. Requests that come while it runs share its result, so that a check that hangs holds one
// goroutine, not one a request.
type check struct {
	name string
	f    func(context.Context) error
	// shown: it fails without making the service unready.
	shown bool

	mu      sync.Mutex
	running *checkRun
	failing bool
}

type checkRun struct {
	done chan struct{}
	err  error
}

func (c *check) run(ctx context.Context) error {
	c.mu.Lock()
	run := c.running
	if run == nil {
		run = &checkRun{done: make(chan struct{})}
		c.running = run
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
			defer cancel()
			err := c.f(ctx)
			c.mu.Lock()
			run.err, c.running = err, nil
			c.mu.Unlock()
			close(run.done)
		}()
	}
	c.mu.Unlock()
	patience := readyTimeout
	if c.shown {
		patience = shownTimeout
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-run.done:
		return run.err
	case <-timer.C:
		return Reason(fmt.Sprintf("no answer within %s", patience))
	}
}

// serveReady answers 200 where every check that counts passes and 503 otherwise, as
// {"status":"ready","checks":{"postgres":"ok"}}.
func (s *Service) serveReady(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	checks := s.checks[:len(s.checks):len(s.checks)]
	s.mu.Unlock()
	errs := make([]error, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { errs[i] = c.run(r.Context()) })
	}
	wg.Wait()
	body := struct {
		Status string            `json:"status"`
		Checks map[string]string `json:"checks"`
	}{"ready", make(map[string]string)}
	status := http.StatusOK
	for i, c := range checks {
		body.Checks[c.name] = publicText(errs[i])
		if errs[i] != nil && !c.shown {
			body.Status, status = "not ready", http.StatusServiceUnavailable
		}
		s.logReady(c, errs[i])
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone away
}

// logReady writes a line where a check changed its mind: not one a request.
func (s *Service) logReady(c *check, err error) {
	c.mu.Lock()
	changed := c.failing != (err != nil)
	c.failing = err != nil
	c.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		s.Log.Warn("check fails", "check", c.name, "error", err.Error())
	default:
		s.Log.Info("check passes again", "check", c.name)
	}
}

func publicText(err error) string {
	if err == nil {
		return "ok"
	}
	if reason, ok := errors.AsType[Reason](err); ok {
		return string(reason)
	}
	netErr, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), isNet && netErr.Timeout():
		return fmt.Sprintf("no answer within %s", readyTimeout)
	case isNet:
		return "no connection"
	default:
		return "failing (the log says why)"
	}
}
