package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
)

// Exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// errUsage marks an error of who typed the command.
var errUsage = errors.New("--help says more")

func main() {
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		os.Exit(workerMain(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "labs: interrupted; what it started is stopped and removed")
		os.Exit(exitInterrupted)
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "labs:", err)
		os.Exit(exitUsage)
	default:
		fmt.Fprintln(os.Stderr, "labs:", err)
		os.Exit(exitFailed)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	s := &session{in: stdin, out: stdout, progressTo: stderr}
	flags := flag.NewFlagSet("labs", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned, and help is printed here
	flags.BoolVar(&s.stepwise, "step", false, "wait for Enter before each step")
	flags.StringVar(&s.redisURL, "redis", "", "use the Redis at this `URL` instead of a new one: only keys that begin with lab:, one lab at a time")
	flags.StringVar(&s.postgresURL, "postgres", "", "use the Postgres at this `URL` instead of a new one, where the lab needs one: only the schema lab")
	flags.Uint64Var(&s.seed, "seed", 1, "which random moments workers are killed at")
	blank := flags.Bool("blank", false, "only with compare: print its table empty, to be filled in by hand first")
	names, err := parse(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		usage(stdout, flags)
		return err
	}
	if err != nil {
		return fmt.Errorf("%w; %w", err, errUsage)
	}
	if len(names) > 1 {
		return fmt.Errorf("one lab at a time, not %q too; %w", names[1], errUsage)
	}
	name := strings.Join(names, "")
	if name == "" && *blank {
		return fmt.Errorf("--blank goes with a lab: compare --blank; %w", errUsage)
	}
	if name == "" {
		list(stdout)
		return nil
	}
	l, err := find(name)
	if err != nil {
		return err
	}
	if *blank && l.blank == nil {
		return fmt.Errorf("only compare has a table to be filled in, %s has none; %w", name, errUsage)
	}
	if *blank {
		l.blank(s)
		return nil
	}
	return s.runLab(ctx, l)
}

// parse reads settings before and after the names, which it returns.
func parse(flags *flag.FlagSet, args []string) (names []string, err error) {
	for err = flags.Parse(args); err == nil && flags.NArg() > 0; err = flags.Parse(flags.Args()[1:]) {
		names = append(names, flags.Arg(0))
	}
	return names, err
}

func usage(to io.Writer, flags *flag.FlagSet) {
	fmt.Fprint(to, "Show on a real Redis what queues do, and count what they lose.\n\n"+
		"  go run ./labs                  list the labs\n"+
		"  go run ./labs NAME [settings]  run one\n\n"+
		"Without Go: docker compose run --rm labs in place of go run ./labs.\n\nSettings:\n")
	flags.SetOutput(to)
	flags.PrintDefaults()
}

func list(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, l := range labs() {
		fmt.Fprintf(w, "  %s\t%s\n", l.name, l.about)
	}
	fmt.Fprint(to, "The labs, in the order in which they are best done. Each has a page in docs/labs.\n\n")
	w.Flush()
	fmt.Fprint(to, "\nRun one:     go run ./labs NAME    (--step waits for Enter before each step)\nWithout Go:  docker compose run --rm labs NAME\n")
}

// find returns the lab of that name, or an error that names the nearest one.
func find(name string) (lab, error) {
	all := labs()
	if i := slices.IndexFunc(all, func(l lab) bool { return l.name == name }); i >= 0 {
		return all[i], nil
	}
	if name == "sms" {
		return lab{}, fmt.Errorf("sms is a program of yours: docs/labs/17-sms.md says how to write it, and go run ./labs/smscheck judges it; %w", errUsage)
	}
	nearest := slices.MinFunc(all, func(a, b lab) int { return distance(a.name, name) - distance(b.name, name) })
	return lab{}, fmt.Errorf("there is no lab %q; did you mean %s? Without a name all are listed; %w", name, nearest.name, errUsage)
}

// distance is how many letters must be put in, taken out or replaced to make b out of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
