package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
)

// Run starts the system, prints what to try, then the services' logs, and keeps it running until ctx is done. Then it
// drains the services, stops the rest, and returns nil. When hurry is done, what has not drained is killed, and Run says so.
func Run(ctx, hurry context.Context, cfg Config, stdout io.Writer) error {
	c := newConsole(stdout, cfg.Colour)
	st, err := openState(cfg.Root)
	if err != nil {
		return err
	}
	defer st.close()
	if err := checkPorts(cfg); err != nil {
		return err
	}
	services := describe(cfg, st)
	if err := build(ctx, cfg, st, services, c); err != nil {
		return orStopped(ctx, err)
	}
	srv, err := startServers(ctx, cfg, st, c)
	if err != nil {
		return orStopped(ctx, err)
	}
	err = srv.writeEnv(st.path("env"))
	if err == nil {
		err = serve(ctx, hurry, cfg, srv, services, c)
	}
	return errors.Join(err, srv.stop(c))
}

// orStopped returns nil where the start was given up because ctx is done.
func orStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// serve runs the services until ctx is done and they have drained.
func serve(ctx, hurry context.Context, cfg Config, srv *servers, services []*service, c *console) error {
	var wg sync.WaitGroup
	errs := make([]error, len(services))
	running, stop := context.WithCancel(ctx)
	defer stop()
	c.hold()
	for i, s := range services {
		s.env = append(s.env, srv.environment(s.name)...)
		if err := s.start(c.source(s.name)); err != nil {
			stop()
			errs[i] = err
			break
		}
		wg.Go(func() { errs[i] = s.keep(running, hurry, c, cfg.RestartAfter, cfg.Grace) })
	}
	keeping, stopKeeping := context.WithCancel(context.Background())
	var servers sync.WaitGroup
	servers.Go(func() { srv.keep(keeping, cfg.RestartAfter, c) })

	readyCtx, cancel := context.WithTimeout(running, cfg.ReadyWithin)
	late := waitReady(readyCtx, services)
	cancel()
	if running.Err() == nil {
		printTable(c, cfg, srv, services, late)
	}
	c.release()

	<-running.Done()
	c.say("stopping: the services finish what they have begun (once more Ctrl-C kills them)")
	wg.Wait()
	stopKeeping()
	servers.Wait()
	return errors.Join(errs...)
}

// checkPorts returns an error that names each port that is taken, and how to choose another.
func checkPorts(cfg Config) error {
	var errs []error
	seen := map[int]string{}
	for _, p := range cfg.ports() {
		if other, twice := seen[p.port]; twice {
			errs = append(errs, fmt.Errorf("port %d is given to both %s and %s", p.port, other, p.name))
			continue
		}
		seen[p.port] = p.name
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)))
		if err != nil {
			errs = append(errs, fmt.Errorf("port %d for %s is taken (%w): set %s to another one, or give --%s-port", p.port, p.name, err, p.variable, p.name))
			continue
		}
		l.Close()
	}
	return errors.Join(errs...)
}

type port struct {
	name, variable string
	port           int
}

func (cfg Config) ports() []port {
	return []port{
		{"orders", "ORDERS_PORT", cfg.Orders},
		{"mailer", "MAILER_PORT", cfg.Mailer},
		{"bonus", "BONUS_PORT", cfg.Bonus},
		{"analytics", "ANALYTICS_PORT", cfg.Analytics},
		{"redis", "REDIS_PORT", cfg.Redis},
		{"postgres", "POSTGRES_PORT", cfg.Postgres},
	}
}
