package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestInterrupt shows that Ctrl-C leaves no server, no worker and no directory.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	cmd, _, stderr := command(t, "fifo", "--step")
	never, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	defer never.Close()
	cmd.Stdin = never
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := make([]byte, 1)
	if _, err := out.Read(seen); err != nil { // its server runs by now
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("it ended with %v, want exit code %d\n%s", err, exitInterrupted, stderr)
	}
}

// TestInterruptAtWork shows the same in the middle of a part that kills workers and starts others.
func TestInterruptAtWork(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks for processes in /proc")
	}
	t.Parallel()
	for _, name := range []string{"list-loss", "lmove"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, stdout, stderr := command(t, name)
			mark := cmd.Env[len(cmd.Env)-1] // TMPDIR=…, which all that it starts inherits
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// A worker is killed, and another stands in its place: so it is at it.
			var all []string
			replaced := func() bool {
				now := processes(t, mark, workerCommand+" "+name+"/consumer")
				for _, pid := range now {
					if !slices.Contains(all, pid) {
						all = append(all, pid)
					}
				}
				return len(all) > 4 && len(now) > 1
			}
			for end := time.Now().Add(time.Minute); !replaced(); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("no worker was replaced\n%s%s", stdout, stderr)
				}
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
				t.Errorf("it ended with %v, want exit code %d\n%s", cmd.ProcessState, exitInterrupted, stderr)
			}
			if strings.Contains(stdout.String(), "\nCounted\n") {
				t.Error("it ran to its end")
			}
			if left := processes(t, mark, ""); len(left) > 0 {
				t.Errorf("processes that are left: %v", left)
			}
		})
	}
}

// processes returns the ids of the processes with this variable in their environment and these words in their command.
func processes(t *testing.T, variable, words string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(all) == 0 {
		t.Fatalf("no processes: %v", err)
	}
	for _, dir := range all {
		// One that has ended meanwhile has neither.
		environment, _ := os.ReadFile(dir + "/environ")
		command, _ := os.ReadFile(dir + "/cmdline")
		if slices.Contains(strings.Split(string(environment), "\x00"), variable) && strings.Contains(strings.ReplaceAll(string(command), "\x00", " "), words) {
			pids = append(pids, filepath.Base(dir))
		}
	}
	return pids
}
