package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"example.com/orderfanout/internal/problem"
)

const (
	defaultDays = 31
	mostDays    = 366
	// readTimeout bounds a look at the sums.
	readTimeout = 3 * time.Second
)

// serve answers GET /stats, or /stats?days=N for the newest N days that had orders instead of 31.
func (s *store) serve(w http.ResponseWriter, r *http.Request) {
	days, bad := readDays(r)
	if bad != nil {
		bad.Write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	stats, err := s.stats(ctx, days)
	if err != nil {
		// The consumer's lines tell of an outage, once; a line for each request would drown them.
		s.log.Debug("stats", "error", err.Error())
		p := problem.New(http.StatusServiceUnavailable, "the statistics cannot be read just now")
		p.RetryAfter = 5 * time.Second
		p.Write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(stats) // the client may have gone away
}

func readDays(r *http.Request) (int, *problem.Problem) {
	values, given := r.URL.Query()["days"]
	if !given {
		return defaultDays, nil
	}
	n, err := strconv.Atoi(values[0])
	if err != nil || len(values) > 1 {
		p := problem.New(http.StatusBadRequest, "days is not one integer")
		p.Errors = []problem.Field{{Field: "days", Detail: "is not one integer"}}
		return 0, p
	}
	if n < 1 || n > mostDays {
		p := problem.New(http.StatusUnprocessableEntity, "days is out of range")
		p.Errors = []problem.Field{{Field: "days", Detail: "is not between 1 and 366"}}
		return 0, p
	}
	return n, nil
}
