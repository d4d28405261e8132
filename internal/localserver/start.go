package localserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"
)

const pollEvery = 10 * time.Millisecond

// waitReady waits until ready returns true. Where the process ends before, the error has its last lines, and
// is an ErrPortTaken if they hold the text taken.
func waitReady(ctx context.Context, p *Process, ready func() (bool, error), taken string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ok, err := ready()
		if ok || err != nil {
			return err
		}
		select {
		case <-p.done:
			if p.out.contains(taken) {
				return ErrPortTaken
			}
			return fmt.Errorf("it ended at once (%s); its last lines:\n%s", p.cmd.ProcessState, p.out)
		case <-ctx.Done():
			return fmt.Errorf("it is not ready: %w; its last lines:\n%s", ctx.Err(), p.out)
		case <-tick.C:
		}
	}
}

// restart calls start until it gets the old port: another program may hold it for a moment.
func restart(start func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	tick := time.NewTicker(10 * pollEvery)
	defer tick.Stop()
	for {
		err := start(ctx)
		if !errors.Is(err, ErrPortTaken) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func serverURL(scheme, user, password string, port int, path string) string {
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: path}
	switch {
	case password != "":
		u.User = url.UserPassword(user, password)
	case user != "":
		u.User = url.User(user)
	}
	return u.String()
}
