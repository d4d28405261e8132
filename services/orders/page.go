package main

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"example.com/orderfanout/internal/problem"
)

const (
	defaultLimit = 20
	maxLimit     = 100
)

// pageQuery is what GET /orders asks for.
type pageQuery struct {
	customerID string
	before     uuid.UUID // only orders with a smaller id
	limit      int
}

// parsePageQuery reads the query of GET /orders. Every bad parameter is named at once; it knows no others than these and
// takes each once.
func parsePageQuery(raw string) (pageQuery, *problem.Problem) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return pageQuery{}, problem.New(http.StatusBadRequest, "the query is not well-formed")
	}
	q := pageQuery{before: uuid.Max, limit: defaultLimit}
	p := problem.New(http.StatusBadRequest, "the query is not right: errors names each parameter")
	bad := func(name, detail string) {
		if len(p.Errors) < maxErrors {
			p.Errors = append(p.Errors, problem.Field{Field: clip(name), Detail: detail})
		}
	}
	if !values.Has("customer_id") {
		bad("customer_id", "is missing")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name][0]
		switch {
		case name != "customer_id" && name != "cursor" && name != "limit":
			bad(name, "is not a parameter; there are customer_id, cursor and limit")
		case len(values[name]) > 1:
			bad(name, "comes more than once")
		case name == "customer_id":
			if detail := checkName(value); detail != "" {
				bad(name, detail)
			}
			q.customerID = value
		case value == "": // cursor and limit may be left empty
		case name == "cursor":
			if q.before, err = parseCursor(value); err != nil {
				bad(name, "must be the next_cursor of an earlier answer, as it was")
			}
		case name == "limit":
			if q.limit, err = strconv.Atoi(value); err != nil || q.limit < 1 || q.limit > maxLimit {
				bad(name, fmt.Sprintf("must be an integer between 1 and %d", maxLimit))
			}
		}
	}
	if len(p.Errors) > 0 {
		return pageQuery{}, p
	}
	return q, nil
}

// A cursor is the id of the last order of a page. Clients should not look inside, so it does not look like one.

func cursorAfter(orderID string) (string, error) {
	id, err := uuid.Parse(orderID)
	if err != nil {
		return "", fmt.Errorf("make a cursor after order %s: %w", orderID, err)
	}
	return base64.RawURLEncoding.EncodeToString(id[:]), nil
}

func parseCursor(s string) (uuid.UUID, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return uuid.Nil, err
	}
	return uuid.FromBytes(raw)
}
