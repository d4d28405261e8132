package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/orderfanout/internal/localserver/servertest"
)

// asProgram in the environment makes the test binary the program itself, and so the workers that it starts.
const asProgram = "LABS_AS_PROGRAM"

// raced is true where the tests run with the race detector.
var raced bool

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	servertest.Main(m)
}

// command is the program with the arguments, in a process of its own. What it leaves in its directory for temporary files fails the test.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, os.Args[0], args...)
	dir := servertest.TempDir(t)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left in the directory for temporary files: %v, %v", left, err)
		}
	})
	return cmd, stdout, stderr
}

// table is what a lab counted: a line's name, a column's name, what stands there.
type table map[string]map[string]string

// quick are the labs that also run where tests must not take long.
var quick = []string{"groups", "lag"}

// runLab runs a lab to its end and returns what it counted.
func runLab(t *testing.T, args ...string) table {
	t.Helper()
	if !slices.Contains(quick, args[0]) {
		if testing.Short() {
			t.Skip("a whole lab; make labs runs them all")
		}
		if raced {
			t.Skip("workers are this binary too, and the race detector makes another program of them; make labs runs them all")
		}
	}
	t.Parallel()
	cmd, stdout, stderr := command(t, args...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, stdout, stderr)
	}
	if strings.Contains(stdout.String(), "\x1b") {
		t.Errorf("colour, though this is no terminal")
	}
	t.Logf("%s", stdout)
	comparePage(t, args, stdout.String())
	_, counted, ok := strings.Cut(stdout.String(), "\nCounted\n")
	if !ok {
		t.Fatal("it counted nothing")
	}
	counted, conclusion, ok := strings.Cut(counted, "\n\nSo: ")
	if !ok || strings.TrimSpace(conclusion) == "" {
		t.Error("it concludes nothing")
	}
	gap := regexp.MustCompile(` {2,}`)
	lines := strings.Split(counted, "\n")
	head := gap.Split(strings.TrimSpace(lines[0]), -1)
	result := table{}
	for _, line := range lines[1:] {
		cells := gap.Split(strings.TrimSpace(line), -1)
		if len(cells) != len(head) {
			t.Fatalf("%q has not the columns of %q", line, lines[0])
		}
		row := map[string]string{}
		for i, cell := range cells[1:] {
			row[head[i+1]] = cell
		}
		result[cells[0]] = row
	}
	return result
}

// number returns what stands in a line and a column.
func (c table) number(t *testing.T, line, column string) int {
	t.Helper()
	cell, ok := c[line][column]
	if !ok {
		t.Fatalf("nothing stands in line %q, column %q of %v", line, column, c)
	}
	n, err := strconv.Atoi(strings.ReplaceAll(cell, ",", ""))
	if err != nil {
		t.Fatalf("line %q, column %q: %v", line, column, err)
	}
	return n
}

// want fails where another number stands there.
func (c table) want(t *testing.T, line, column string, n int) {
	t.Helper()
	if got := c.number(t, line, column); got != n {
		t.Errorf("%s, %s: %d, want %d", line, column, got, n)
	}
}

// wantSome fails where the number is 0 or less.
func (c table) wantSome(t *testing.T, line, column string) {
	t.Helper()
	if got := c.number(t, line, column); got <= 0 {
		t.Errorf("%s, %s: %d, want more than 0", line, column, got)
	}
}

// wantSum fails where the columns of a line do not add up to n.
func (c table) wantSum(t *testing.T, line string, n int, columns ...string) {
	t.Helper()
	sum := 0
	for _, column := range columns {
		sum += c.number(t, line, column)
	}
	if sum != n {
		t.Errorf("%s: %s add up to %d, want %d", line, strings.Join(columns, " and "), sum, n)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	cmd, stdout, stderr := command(t)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	for _, l := range labs() {
		if !strings.Contains(stdout.String(), "\n  "+l.name+" ") {
			t.Errorf("%s is not listed in\n%s", l.name, stdout)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		exit int
		says string
	}{
		{[]string{"-h"}, 0, "wait for Enter"},
		{[]string{"fifo", "--help"}, 0, "wait for Enter"},
		{[]string{"sms"}, exitUsage, "smscheck"},
		{[]string{"fiffo"}, exitUsage, "did you mean fifo?"},
		{[]string{"list-los"}, exitUsage, "did you mean list-loss?"},
		{[]string{"fifo", "--nothing"}, exitUsage, "-nothing"},
		{[]string{"fifo", "list-loss"}, exitUsage, "one lab at a time"},
		{[]string{"--seed", "2", "fifo", "--nothing"}, exitUsage, "-nothing"},
		{[]string{"--seed", "2", "compare", "--blank"}, 0, "______"},
		{[]string{"fifo", "--blank"}, exitUsage, "only compare"},
		{[]string{"--blank"}, exitUsage, "compare --blank"},
		{[]string{"fifo", "--redis", "nonsense"}, exitUsage, "--redis"},
		{[]string{"fifo", "--redis", "redis://127.0.0.1:1"}, exitFailed, "ask Redis"},
	} {
		cmd, stdout, stderr := command(t, test.args...)
		cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != test.exit {
			t.Errorf("%v: exit %d, want %d", test.args, got, test.exit)
		}
		if all := stdout.String() + stderr.String(); !strings.Contains(all, test.says) {
			t.Errorf("%v says %q, want something with %q", test.args, all, test.says)
		}
	}
}

// TestStep shows that --step waits before each step, and goes on where the input ends.
func TestStep(t *testing.T) {
	t.Parallel()
	cmd, stdout, stderr := command(t, "--step", "fifo")
	cmd.Stdin = strings.NewReader("\n")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	if n := strings.Count(stdout.String(), "Enter goes on"); n != 3 {
		t.Errorf("it asked %d times, want 3\n%s", n, stdout)
	}
}
