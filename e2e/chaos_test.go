package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestChaos runs the system under load and faults at random for DURATION (10 s by default, 2 min by make chaos), and then looks at
// the books: nothing is lost and nothing is done twice. SEED decides the faults, their targets and their times.
func TestChaos(t *testing.T) {
	duration, seed := chaosSettings(t)
	plan := newPlan(seed, duration)
	w := newChaosWorld(t, seed)
	fmt.Printf("chaos: seed %d, %s, %d faults; to repeat it: make chaos SEED=%d DURATION=%s\n", seed, duration, len(plan), seed, duration)

	w.began = time.Now()
	var faults sync.WaitGroup
	load := w.startLoad()
	show := w.startShow(duration)
	for _, f := range plan {
		time.Sleep(time.Until(w.began.Add(f.at)))
		faults.Go(func() { w.do(f) })
	}
	time.Sleep(time.Until(w.began.Add(duration)))
	load() // the clients end; what they began they see through
	faults.Wait()
	w.heal()
	ended := time.Now()
	settled := w.settle(2 * time.Minute)
	show()
	w.report(seed, duration, ended, settled)
}

func chaosSettings(t *testing.T) (duration time.Duration, seed uint64) {
	t.Helper()
	duration, seed = 10*time.Second, rand.Uint64N(1_000_000)
	var err error
	if v := os.Getenv("DURATION"); v != "" {
		if duration, err = time.ParseDuration(v); err != nil || duration < time.Second || duration > 24*time.Hour {
			t.Fatalf("DURATION: %q is not a time of 1s to 24h, such as 90s or 5m", v)
		}
	}
	if v := os.Getenv("SEED"); v != "" {
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("SEED: %q is not a whole number", v)
		}
	}
	return duration, seed
}

// fault is one thing that goes wrong.
type fault struct {
	at      time.Duration // after the start
	kind    string
	service int           // index in chaosServices
	replica int           // 0 or 1
	lasts   time.Duration // until it is mended
	n       int           // for what comes in numbers, and for choices
}

// faultKinds are what can go wrong, and how often relative to each other.
var faultKinds = []struct {
	name   string
	weight int
}{
	{"kill", 8}, {"freeze", 5}, {"roll", 2}, {"scale", 3},
	{"redis killed", 3}, {"redis killed while the disk is busy", 2}, {"redis frozen", 2},
	{"postgres killed", 2}, {"postgres frozen", 2},
	{"network cut", 4}, {"network cut one way", 4}, {"network slow", 3},
	{"mail refused", 2}, {"mail server says goodbye", 2}, {"mail answers lost", 2},
	{"poison", 3}, {"duplicates", 3},
}

// newPlan draws the faults of a run. The gaps are shorter than most faults last, so that faults meet each other.
func newPlan(seed uint64, duration time.Duration) []fault {
	r := rand.New(rand.NewPCG(seed, 0))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(r.Int64N(int64(most-least)))
	}
	total := 0
	for _, k := range faultKinds {
		total += k.weight
	}
	var plan []fault
	for at := between(500*time.Millisecond, 2*time.Second); at < duration; at += between(100*time.Millisecond, 2500*time.Millisecond) {
		pick := r.IntN(total)
		i := 0
		for ; pick >= faultKinds[i].weight; i++ {
			pick -= faultKinds[i].weight
		}
		plan = append(plan, fault{
			at: at, kind: faultKinds[i].name, service: r.IntN(len(chaosServices)), replica: r.IntN(2),
			lasts: between(200*time.Millisecond, 6*time.Second), n: 1 + r.IntN(12),
		})
	}
	return plan
}

// TestChaosIsRepeatable: the same seed makes the same faults, and in a long run every kind of them.
func TestChaosIsRepeatable(t *testing.T) {
	t.Parallel()
	a, b := newPlan(7, 10*time.Minute), newPlan(7, 10*time.Minute)
	kinds := map[string]bool{}
	for i, f := range a {
		if f != b[i] {
			t.Fatalf("fault %d is %+v and %+v", i, f, b[i])
		}
		kinds[f.kind] = true
	}
	if c := newPlan(8, 10*time.Minute); c[0] == a[0] && c[1] == a[1] {
		t.Error("another seed makes the same faults")
	}
	for _, k := range faultKinds {
		if !kinds[k.name] {
			t.Errorf("ten minutes without %q", k.name)
		}
	}
}
