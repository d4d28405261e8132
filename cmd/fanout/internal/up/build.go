package up

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// describe lists the services in the order in which they start.
func describe(cfg Config, st *state) []*service {
	services := []*service{
		{name: "orders", port: cfg.Orders},
		{name: "mailer", port: cfg.Mailer},
		{name: "bonus", port: cfg.Bonus},
		{name: "analytics", port: cfg.Analytics},
	}
	for _, s := range services {
		s.program = st.path("bin", s.name)
		s.pidFile = st.path(s.name + ".pid")
		s.env = append([]string{"HTTP_ADDR=127.0.0.1:" + strconv.Itoa(s.port)}, cfg.Env[s.name]...)
		s.firstEnv = cfg.FirstEnv[s.name]
	}
	return services
}

// build makes the services' programs, and the operator's tool, under .fanout/bin.
func build(ctx context.Context, cfg Config, st *state, services []*service, c *console) error {
	c.say("building %s", names(services))
	began := time.Now()
	// No version stamp: git refuses a checkout that another user owns.
	args := []string{"build", "-buildvcs=false", "-o", st.path("bin") + string(filepath.Separator)}
	for _, s := range services {
		args = append(args, "./services/"+s.name)
	}
	args = append(args, "./cmd/fanout")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = cfg.Root
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdout, cmd.Stderr = indent{c}, indent{c}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", names(services), err)
	}
	c.say("built in %s", time.Since(began).Round(100*time.Millisecond))
	return nil
}

// indent prints what the go command says, such as what it downloads.
type indent struct{ c *console }

func (w indent) Write(b []byte) (int, error) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.c.to.Write(b)
}
