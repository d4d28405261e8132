package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func run(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.Execute()
	return out.String(), err
}

// The tests below change the environment or the directory of the process, so they are not parallel.

func TestBadPortsAreNamed(t *testing.T) {
	t.Setenv("BONUS_PORT", "8082-8091")
	t.Setenv("REDIS_PORT", "0")
	_, err := run(t, "", "up")
	if err == nil || !strings.Contains(err.Error(), "BONUS_PORT") || !strings.Contains(err.Error(), "REDIS_PORT") {
		t.Errorf("err = %v, want it to name both", err)
	}
}

func TestPortsInTheEnvironmentAreDefaults(t *testing.T) {
	t.Setenv("ORDERS_PORT", "9080")
	out, err := run(t, "", "up", "--help")
	if err != nil || !strings.Contains(out, "default 9080") || !strings.Contains(out, "default 8081") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestOutsideACheckout(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, command := range []string{"up", "down"} {
		if _, err := run(t, "", command); err == nil || !strings.Contains(err.Error(), "not inside a checkout") {
			t.Errorf("%s: %v", command, err)
		}
	}
}

func TestDownAsks(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"services/orders", ".fanout/mail"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "services/orders/go.mod"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(root, "services"))
	for _, answer := range []string{"", "\n", "n\n"} {
		if _, err := run(t, answer, "down"); err == nil {
			t.Errorf("answer %q: no error", answer)
		}
	}
	if _, err := os.Stat(filepath.Join(root, ".fanout/mail")); err != nil {
		t.Fatalf("removed without a yes: %v", err)
	}
	for range 2 { // the second finds nothing
		if out, err := run(t, "y\n", "down"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(root, ".fanout")); !os.IsNotExist(err) {
		t.Errorf(".fanout is left: %v", err)
	}
}
