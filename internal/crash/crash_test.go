package crash

import (
	"strings"
	"testing"
)

func TestArm(t *testing.T) {
	defer func(d func()) { die, armed = d, nil }(die)
	died := 0
	die = func() { died++ }
	At(EntryRead)
	if err := Arm(""); err != nil || armed != nil {
		t.Errorf("Arm of nothing: %v", err)
	}
	for spec, want := range map[string]string{"entry.reed": "entry.read", "entry.read:0": "at least 1", "entry.read:x": `"x"`, "entry.read:": "at least 1"} {
		if err := Arm(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Arm(%q) = %v, want an error with %q", spec, err, want)
		}
	}
	if err := Arm("entry.read:3"); err != nil || !Armed(EntryRead) || Armed(EntryAcked) {
		t.Fatalf("Arm: %v", err)
	}
	for pass := range 5 {
		At(EntryAcked)
		At(EntryRead)
		if want := min(max(pass-1, 0), 1); died != want {
			t.Errorf("after %d passages it has died %d times, want %d", pass+1, died, want)
		}
	}
}

func TestPointsAreDifferent(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Points {
		if seen[p] || strings.ContainsAny(p, ": ,") {
			t.Errorf("%q comes twice, or cannot be given", p)
		}
		seen[p] = true
	}
}
