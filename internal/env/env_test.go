package env

import (
	"strings"
	"testing"
	"time"
)

func reader(pairs ...string) *Reader {
	vars := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		vars[pairs[i]] = pairs[i+1]
	}
	return NewReader(func(name string) string { return vars[name] })
}

func TestEmptyCountsAsNotSet(t *testing.T) {
	t.Parallel()
	r := reader("A", "", "B", "")
	if got := r.String("A", "x"); got != "x" {
		t.Errorf("String = %q, want the default", got)
	}
	if got := r.Int("B", 7, 1, 10); got != 7 {
		t.Errorf("Int = %d, want the default", got)
	}
	if err := r.Err(); err != nil {
		t.Errorf("Err = %v, want nil", err)
	}
}

func TestIntKeepsWithinItsBounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value string
		want  int
		bad   bool
	}{
		{"1", 1, false},
		{"10", 10, false},
		{"0", 5, true},
		{"11", 5, true},
		{"ten", 5, true},
		{"1.5", 5, true},
		{"99999999999999999999", 5, true},
	} {
		r := reader("N", test.value)
		if got := r.Int("N", 5, 1, 10); got != test.want {
			t.Errorf("Int of %q = %d, want %d", test.value, got, test.want)
		}
		if err := r.Err(); (err != nil) != test.bad {
			t.Errorf("Err for %q = %v, want an error: %t", test.value, err, test.bad)
		} else if err != nil && !strings.HasPrefix(err.Error(), "N: ") {
			t.Errorf("Err for %q = %q does not name the variable", test.value, err)
		}
	}
}

func TestDurationTakesDays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value string
		want  time.Duration
		bad   bool
	}{
		{"500ms", 500 * time.Millisecond, false},
		{"1h30m", 90 * time.Minute, false},
		{"7d", 7 * 24 * time.Hour, false},
		{"0d", time.Second, true}, // below the least
		{"5", time.Second, true},  // five of what
		{"d", time.Second, true},
		{"-1d", time.Second, true},
		{"1d12h", time.Second, true},
		{"40000d", time.Second, true},
	} {
		r := reader("D", test.value)
		if got := r.Duration("D", time.Second, time.Millisecond); got != test.want {
			t.Errorf("Duration of %q = %s, want %s", test.value, got, test.want)
		}
		if err := r.Err(); (err != nil) != test.bad {
			t.Errorf("Err for %q = %v, want an error: %t", test.value, err, test.bad)
		}
	}
}

func TestURLNeverRepeatsItsValue(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		"postgres://orders:s3cret@:bad port/x",
		"s3cret",
		"mysql://orders:s3cret@db/x",
		"postgres:s3cret",
	} {
		r := reader("DATABASE_URL", value)
		r.URL("DATABASE_URL", "", "postgres", "postgresql")
		err := r.Err()
		if err == nil {
			t.Errorf("URL %q was taken", value)
			continue
		}
		if strings.Contains(err.Error(), "s3cret") || !strings.HasPrefix(err.Error(), "DATABASE_URL: ") {
			t.Errorf("Err for %q = %q: want the name and not the value", value, err)
		}
	}
}

func TestURLIsRequiredWithoutDefault(t *testing.T) {
	t.Parallel()
	r := reader()
	r.URL("REDIS_URL", "", "redis", "rediss")
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "REDIS_URL: is not set") {
		t.Errorf("Err = %v, want REDIS_URL named", err)
	}
	r = reader("REDIS_URL", "rediss://h:6379/0")
	if got := r.URL("REDIS_URL", "", "redis", "rediss"); got != "rediss://h:6379/0" || r.Err() != nil {
		t.Errorf("URL = %q, %v", got, r.Err())
	}
}

func TestErrNamesAllAtOnce(t *testing.T) {
	t.Parallel()
	r := reader("A", "x", "B", "y")
	r.Int("A", 1, 1, 2)
	r.Duration("B", time.Second, 0)
	r.Fail("C", "is %d", 3)
	err := r.Err()
	for _, want := range []string{"A: ", "B: ", "C: is 3"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Err = %v, want %q in it", err, want)
		}
	}
}
