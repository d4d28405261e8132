// Package problem writes HTTP errors as RFC 9457 problem details.
package problem

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Problem is the body of an error answer (RFC 9457, section 3) with one extension, errors.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Errors []Field `json:"errors,omitempty"`
	// RetryAfter is sent as the Retry-After header, in whole seconds rounded up. Zero: no header.
	RetryAfter time.Duration `json:"-"`
}

// Field names one bad field of a request, for instance "items[0].quantity", and what is wrong with it.
type Field struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// New returns a problem with the status and a detail for the client to read.
func New(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// Error makes a Problem an error.
func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Title, p.Detail) }

// Write answers the request with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((p.RetryAfter+time.Second-1)/time.Second), 10))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may have gone away
}
