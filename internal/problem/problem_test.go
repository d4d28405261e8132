package problem

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	p := New(http.StatusUnprocessableEntity, "item %d is wrong", 3)
	p.Errors = []Field{{Field: "items[3].quantity", Detail: "is 0"}}
	w := httptest.NewRecorder()
	p.Write(w)
	if w.Code != 422 || w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("answer = %d %v", w.Code, w.Header())
	}
	if w.Header().Get("Retry-After") != "" {
		t.Errorf("Retry-After = %q, want none", w.Header().Get("Retry-After"))
	}
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "about:blank", "title": "Unprocessable Entity", "status": 422.0, "detail": "item 3 is wrong",
		"errors": []any{map[string]any{"field": "items[3].quantity", "detail": "is 0"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("body = %v, want %v", got, want)
	}
}

func TestRetryAfterRoundsUp(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{
		time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2", time.Minute: "60",
	} {
		p := New(http.StatusServiceUnavailable, "later")
		p.RetryAfter = after
		w := httptest.NewRecorder()
		p.Write(w)
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("Retry-After for %s = %q, want %q", after, got, want)
		}
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	if got := New(404, "no order %s", "o-1").Error(); got != "404 Not Found: no order o-1" {
		t.Errorf("Error = %q", got)
	}
}
