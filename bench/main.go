// Command bench measures this project beside what people use today: the same work, on the same servers, in the same run, each
// contender in a process of its own and in turn with the others. It starts a Redis and a Postgres itself.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch mode := append(os.Args[1:], "")[0]; mode {
	case "child":
		err = childMain(ctx, os.Args[2:])
	case "worker":
		err = workerMain(ctx, os.Args[2:])
	default:
		err = benchMain(ctx, os.Args[1:])
	}
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted: %w", err) // what was killed for it says only that
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func benchMain(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "a fifth of the work, one round: an impression within two minutes")
	rounds := flags.Int("rounds", 5, "how often each contender runs; the medians count")
	grown := flags.Bool("sizes", false, "instead: the same beside more and more of what piles up (entries, markers, consumers); a round takes five minutes and 5 GB")
	soakFor := flags.Duration("soak", 0, "instead: all services under all the load that the machine makes, for that `long` (10m), their memory, and how soon they are ready")
	kill := flags.Bool("killed", false, "instead: how long after a worker's kill -9 another one has its message; six minutes")
	only := flags.String("only", "", "only the works with this in their name")
	jsonFile := flags.String("json", "", "write all results to this `file`")
	plotFile := flags.String("plot", "", "write the picture (SVG) to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; see bench -h", flags.Arg(0))
	}
	if *rounds < 1 {
		return fmt.Errorf("-rounds %d: at least 1", *rounds)
	}
	share := 1
	if *soakFor < 0 {
		return fmt.Errorf("-soak %s: a time such as 10m", *soakFor)
	}
	if (*soakFor > 0 || *kill) && flags.NFlag() > 1 {
		return errors.New("-soak and -killed go alone: each prints one table")
	}
	if *quick && *grown {
		return errors.New("-quick and -sizes: there is no fifth of a size; -rounds 1 is the quickest")
	}
	if *quick {
		share, *rounds = 5, 1
	}
	if _, err := os.Stat("services"); err != nil {
		return errors.New("there is no ./services here: run it at the top of the checkout, with make bench")
	}
	dir, err := os.MkdirTemp("", "orderfanout-bench-")
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // as root, Postgres runs as somebody else
		return err
	}
	s, stopServers, err := startServers(ctx, dir)
	if err != nil {
		return err
	}
	defer stopServers()
	if *kill {
		return killed(ctx, s, os.Stdout)
	}
	if *soakFor > 0 {
		if err := buildServices(ctx, s.bin, allServices); err != nil {
			return err
		}
		return soak(ctx, s, *soakFor, os.Stdout)
	}
	rep := report{Machine: machine(), Quick: *quick}
	fmt.Printf("%s; all contenders with %s\n", rep.Machine, gogc())
	all := works()
	if *grown {
		all = sizes()
	}
	for _, w := range all {
		if !strings.Contains(w.name, *only) {
			continue
		}
		results := make([][]result, len(w.contenders))
		for round := range *rounds {
			for i, c := range w.contenders {
				progress("%s, round %d of %d: %s", w.name, round+1, *rounds, c.name)
				r, err := run(ctx, s, w, c, max(c.n/share, 1))
				if err != nil {
					return err
				}
				results[i] = append(results[i], r)
			}
		}
		progress("")
		part := summarize(w, results)
		part.print(os.Stdout)
		rep.Works = append(rep.Works, part)
	}
	if len(rep.Works) == 0 {
		return fmt.Errorf("-only %q: no work has that in its name", *only)
	}
	if *jsonFile != "" {
		data, err := json.MarshalIndent(rep, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*jsonFile, append(data, '\n'), 0o644); err != nil {
			return err
		}
	}
	if *plotFile != "" {
		picture := plot
		if *grown {
			picture = plotSizes
		}
		if err := os.WriteFile(*plotFile, picture(rep), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// allServices are in the order of an event: orders makes it, the others each have a group of their name.
var allServices = []string{"orders", "mailer", "bonus", "analytics"}

// buildServices builds those of the project's services that are not built yet, as they are in this checkout.
func buildServices(ctx context.Context, bin string, names []string) error {
	for _, name := range names {
		program := filepath.Join(bin, name)
		if _, err := os.Stat(program); err == nil {
			continue
		}
		progress("build %s", name)
		cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, ".")
		cmd.Dir = filepath.Join("services", name) // make bench runs it at the top of the checkout
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", name, err, out)
		}
	}
	return nil
}

var terminal = func() bool {
	info, err := os.Stderr.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}()

// progress says what is going on, where somebody looks.
func progress(format string, args ...any) {
	if terminal {
		fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...)
	}
}
