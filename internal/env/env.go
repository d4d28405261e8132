// Package env reads a program's settings from its environment and names every bad one at once.
package env

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Reader reads settings one by one and remembers what was wrong with them.
type Reader struct {
	getenv func(string) string
	errs   []error
}

// NewReader reads through getenv, as a rule os.Getenv. A variable that is empty counts as not set.
func NewReader(getenv func(string) string) *Reader { return &Reader{getenv: getenv} }

// Err returns all that was wrong so far, each with the name of its variable, or nil.
func (r *Reader) Err() error { return errors.Join(r.errs...) }

// Fail notes that the variable name is wrong.
func (r *Reader) Fail(name, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...)))
}

// String returns the variable, or def where it is not set.
func (r *Reader) String(name, def string) string {
	if v := r.getenv(name); v != "" {
		return v
	}
	return def
}

// URL returns the variable, which must be a URL with one of the schemes, or def where it is not set. With an
// empty def the variable is required. The value itself is never repeated in an error: it may hold a password.
func (r *Reader) URL(name, def string, schemes ...string) string {
	v := r.String(name, def)
	if v == "" {
		r.Fail(name, "is not set (a %s:// URL)", schemes[0])
		return v
	}
	u, err := url.Parse(v)
	if err != nil || u.Host == "" {
		r.Fail(name, "is not a URL")
		return v
	}
	for _, scheme := range schemes {
		if u.Scheme == scheme {
			return v
		}
	}
	r.Fail(name, "scheme %q is not one of %q", u.Scheme, schemes)
	return v
}

// Int returns the variable as an integer between min and max, or def where it is not set.
func (r *Reader) Int(name string, def, min, max int) int {
	v := r.getenv(name)
	if v == "" {
		return def
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		r.Fail(name, "%q is not an integer", v)
		return def
	}
	if n < min || n > max {
		r.Fail(name, "%d is not between %d and %d", n, min, max)
		return def
	}
	return n
}

// Duration returns the variable as a duration such as "5s", "24h" or "7d" of at least min, or def where it is not set.
func (r *Reader) Duration(name string, def, min time.Duration) time.Duration {
	v := r.getenv(name)
	if v == "" {
		return def
	}
	d, err := ParseDuration(v)
	if err != nil {
		r.Fail(name, "%q is not a duration (use for instance 500ms, 5s, 24h, 7d)", v)
		return def
	}
	if d < min {
		r.Fail(name, "%s is less than %s", v, min)
		return def
	}
	return d
}

// ParseDuration is time.ParseDuration that also takes whole days, as "7d".
func ParseDuration(s string) (time.Duration, error) {
	if n := len(s); n > 1 && s[n-1] == 'd' {
		days, err := strconv.ParseUint(s[:n-1], 10, 16)
		if err != nil || days > 36500 {
			return 0, fmt.Errorf("parse duration %q: not a number of days", s)
		}
		return time.Duration(days) * 24 * time.Hour, nil
	}
	return time.ParseDuration(s)
}
