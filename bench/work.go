package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"
)

// work is one thing to be done in several ways.
type work struct {
	name, unit string
	contenders []contender
	goals      []goal
	sizes      bool // the contenders do the same, beside more and more of something
}

// contender is one way to do a work. It runs in a process of its own, so that its CPU time and memory are its own.
type contender struct {
	name     string   // "watermill, 16 workers"
	settings string   // what it was given, for the reader to judge
	n        int      // how much of the work one run does; two to five seconds of it
	size     int      // of what has piled up, in works of sizes
	services []string // the project's services that it runs

	// prepare makes the backlog, in the benchmark's process. Nil where there is none.
	prepare func(ctx context.Context, s *servers, n int) error
	// run does the work, in the contender's process.
	run func(ctx context.Context, c *child) error
	// verify looks, in the benchmark's process, whether the result is right.
	verify func(ctx context.Context, s *servers, n int) error
}

// goal holds one contender's rate against another's, or against a figure, or its latency against figures.
type goal struct {
	who, against string  // names of contenders, or bestPeer; against "" is a figure
	least        float64 // ratio, or rate
	p50, p99     float64 // at most, in ms; then least is not used
}

// bestPeer is the quickest of the contenders that are neither ours nor bare.
const bestPeer = "the best peer"

// isPeer reports whether the contender is one of the systems that people use today.
func isPeer(name string) bool {
	return !strings.HasPrefix(name, "ours") && !strings.HasPrefix(name, "bare") && !strings.HasPrefix(name, "pgbench")
}

// child is what a contender's process knows.
type child struct {
	*servers
	name string
	n    int

	output io.Writer // gets what a service logs; nil: nobody

	took time.Duration
	cpu  time.Duration // used while the clock ran, by child processes too
	peak int64         // bytes, of the services where there are some; 0: of this process
	// latencies, where the work is about time rather than rate.
	latencies []time.Duration
}

// measure is the part of a run that counts: connections are there before it begins.
func (c *child) measure(f func() error) error {
	stop, err := c.profile()
	if err != nil {
		return err
	}
	defer stop()
	cpu := cpuTime()
	began := time.Now()
	err = f()
	c.took, c.cpu = time.Since(began), cpuTime()-cpu
	return err
}

// profile writes a CPU profile of what is measured, where BENCH_PROFILES names a directory for it.
func (c *child) profile() (stop func(), err error) {
	dir := os.Getenv("BENCH_PROFILES")
	if dir == "" {
		return func() {}, nil
	}
	f, err := os.Create(filepath.Join(dir, strings.ReplaceAll(c.name, "/", "-")+".prof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, nil
}

// works are all that is measured, in the order of the table.
func works() []work {
	return []work{consume(), threeGroups(), publish(), bonus(), analytics(), mailer(), relay(), orders(), latency(), endToEnd()}
}
