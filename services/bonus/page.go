package main

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"example.com/orderfanout/internal/problem"
)

const (
	defaultLimit = 20
	maxLimit     = 100
	maxBad       = 10  // parameters named in one answer
	maxShown     = 100 // bytes of a parameter's name
)

// pageQuery is what GET /customers/{id}/bonus asks for.
type pageQuery struct {
	customerID string
	behind     cursor // only entries older than this
	limit      int
}

// parsePageQuery reads the customer's id and the query. Every bad parameter is named at
// once; it knows cursor and limit and takes each once.
func parsePageQuery(id, raw string) (pageQuery, *problem.Problem) {
	q := pageQuery{behind: newest, limit: defaultLimit}
	p := problem.New(http.StatusBadRequest, "the request is not right: errors names each parameter")
	bad := func(name, detail string) {
		if len(p.Errors) < maxBad {
			p.Errors = append(p.Errors, problem.Field{Field: name[:min(len(name), maxShown)], Detail: detail})
		}
	}
	if q.customerID = id; !isCustomerID(id) {
		bad("id", `must be 1 to 64 ASCII letters, digits and "._:-"`)
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return pageQuery{}, problem.New(http.StatusBadRequest, "the query is not well-formed")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name][0]
		switch {
		case name != "cursor" && name != "limit":
			bad(name, "is not a parameter; there are cursor and limit")
		case len(values[name]) > 1:
			bad(name, "comes more than once")
		case value == "": // may be left empty
		case name == "cursor":
			if q.behind, err = parseCursor(value); err != nil {
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

// isCustomerID reports whether an order can have this customer.
func isCustomerID(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}

// cursor is a place in a customer's ledger: the entry that a page ended with.
type cursor struct {
	createdAt time.Time
	eventID   string
}

// newest lies in front of every entry.
var newest = cursor{createdAt: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}

var errCursor = errors.New("not a cursor")

// String returns the cursor as text. Clients should not look inside, so it does not look like what it is.
func (c cursor) String() string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(c.createdAt.UnixMicro())) // Postgres keeps microseconds
	return base64.RawURLEncoding.EncodeToString(append(raw, c.eventID...))
}

func parseCursor(s string) (cursor, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return cursor{}, err
	}
	if len(raw) < 8 {
		return cursor{}, errCursor
	}
	c := cursor{time.UnixMicro(int64(binary.BigEndian.Uint64(raw))).UTC(), string(raw[8:])}
	if c.createdAt.Before(time.Unix(0, 0)) || c.createdAt.After(newest.createdAt) || !isName(c.eventID) {
		return cursor{}, errCursor
	}
	return c, nil
}
