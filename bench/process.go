package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// result is one run of one contender.
type result struct {
	N         int             `json:"n"`
	Seconds   float64         `json:"seconds"`
	CPU       float64         `json:"cpu_seconds"`
	PeakBytes int64           `json:"peak_bytes"`
	Latencies []time.Duration `json:"latencies_ns,omitempty"` // sorted
}

func (r result) rate() float64 { return float64(r.N) / r.Seconds }

// gogc is how every contender's collector is set: as the project's services set theirs, unless the environment says otherwise. With a few
// megabytes in use the default collects so often that it costs as much as consuming does.
func gogc() string { return "GOGC=" + cmp.Or(os.Getenv("GOGC"), "300") }

// run runs a contender once, on empty servers, in a process of its own, and looks at what it did.
func run(ctx context.Context, s *servers, w work, c contender, n int) (result, error) {
	fail := func(err error) (result, error) { return result{}, fmt.Errorf("%s, %s: %w", w.name, c.name, err) }
	if err := buildServices(ctx, s.bin, c.services); err != nil {
		return fail(err)
	}
	if err := s.clear(ctx); err != nil {
		return fail(err)
	}
	if c.prepare != nil {
		if err := c.prepare(ctx, s, n); err != nil {
			return fail(err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, "child", w.name, c.name, strconv.Itoa(n))
	cmd.Env = append(append(os.Environ(), s.env()...), gogc())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Cancel = func() error {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return cmd.Process.Signal(syscall.SIGQUIT) // it says what it waits for
		}
		return cmd.Process.Kill()
	}
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fail(fmt.Errorf("%w: %s", err, errs.Bytes()))
	}
	var r result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return fail(fmt.Errorf("%w: %s%s", err, out.Bytes(), errs.Bytes()))
	}
	if c.verify != nil {
		if err := c.verify(ctx, s, n); err != nil {
			return fail(err)
		}
	}
	return r, nil
}

// childMain is the contender's process: child WORK CONTENDER N.
func childMain(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("child: WORK CONTENDER N")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	for _, w := range append(works(), sizes()...) {
		i := slices.IndexFunc(w.contenders, func(c contender) bool { return c.name == args[1] })
		if w.name != args[0] || i < 0 {
			continue
		}
		c := &child{servers: serversOfEnv(), name: args[1], n: n}
		if err := w.contenders[i].run(ctx, c); err != nil {
			return err
		}
		slices.Sort(c.latencies)
		if c.peak == 0 {
			c.peak = memory(os.Getpid(), peakMemory)
		}
		return json.NewEncoder(os.Stdout).Encode(result{N: n, Seconds: c.took.Seconds(), CPU: c.cpu.Seconds(), PeakBytes: c.peak, Latencies: c.latencies})
	}
	return fmt.Errorf("no work %q with a contender %q", args[0], args[1])
}

// cpuTime is what this process and the children that it waited for have used.
func cpuTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// What memory returns, by its name in /proc/PID/status.
const peakMemory, memoryNow, memoryAnonymous = "VmHWM:", "VmRSS:", "RssAnon:"

// memory is what a process has resident, or the most that it had, in bytes. On Linux getrusage(2) does not tell: it counts what the
// parent had at the fork.
func memory(pid int, which string) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err == nil {
		for line := range strings.Lines(string(status)) {
			if value, ok := strings.CutPrefix(line, which); ok {
				kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
				return kb << 10
			}
		}
	}
	var u syscall.Rusage
	if which == peakMemory && pid == os.Getpid() && syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		return u.Maxrss // bytes, on macOS
	}
	return 0
}
