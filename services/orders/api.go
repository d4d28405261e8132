package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/orderfanout/event"
	"example.com/orderfanout/internal/crash"
	"example.com/orderfanout/internal/problem"
)

//go:embed openapi.yaml
var openAPI []byte

// The waits that Retry-After asks for.
const (
	retryBusy = time.Second     // another request is at work with the same key
	retryAway = 2 * time.Second // the database is away
)

// api answers HTTP.
type api struct {
	store    *store
	cache    *cache
	wake     func() // an order was committed
	accepted prometheus.Counter
	log      *slog.Logger
	quiet    calm // for the log lines of an outage
}

// routes adds all routes of the service: to public those that are open to all, to private those that ask for the API token.
func (a *api) routes(public, private chi.Router) {
	public.Get("/openapi.yaml", a.getOpenAPI)
	private.Post("/orders", a.postOrder)
	private.Get("/orders", a.listOrders)
	private.Get("/orders/{id}", a.getOrder)
}

func (a *api) getOpenAPI(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/yaml") // RFC 9512
	_, _ = w.Write(openAPI)                            // the client may have gone away
}

func (a *api) postOrder(w http.ResponseWriter, r *http.Request) {
	key, p := idempotencyKey(r.Header)
	if p != nil {
		a.writeError(w, r, p)
		return
	}
	body, p := readBody(w, r)
	if p != nil {
		a.writeError(w, r, p)
		return
	}
	req, p := decodeOrder(body)
	if p != nil {
		a.writeError(w, r, p)
		return
	}
	placement, err := newPlacement(r.Context(), req, key)
	if err != nil {
		a.writeError(w, r, err)
		return
	}
	got, err := a.store.place(r.Context(), placement)
	if err != nil {
		a.writeError(w, r, err)
		return
	}
	if got.replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	} else {
		crash.At(crash.OrderCommitted)
		a.wake()
		a.accepted.Inc()
		a.log.Debug("order placed", "order_id", got.id, "event_id", placement.eventID)
	}
	w.Header().Set("Location", "/orders/"+got.id)
	writeJSON(w, http.StatusCreated, got.data)
}

func (a *api) getOrder(w http.ResponseWriter, r *http.Request) {
	id, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		a.writeError(w, r, errNotFound)
		return
	}
	if data := a.cache.get(r.Context(), id); data != nil {
		w.Header().Set("X-Cache", "hit")
		writeJSON(w, http.StatusOK, data)
		return
	}
	w.Header().Set("X-Cache", "miss")
	data, err := a.store.order(r.Context(), id)
	if err != nil {
		a.writeError(w, r, err)
		return
	}
	a.cache.put(r.Context(), id, data)
	writeJSON(w, http.StatusOK, data)
}

// orderPage is the answer to GET /orders.
type orderPage struct {
	Orders []event.OrderPlaced `json:"orders"`
	// NextCursor leads to the orders that follow; it is missing where there are none.
	NextCursor string `json:"next_cursor,omitempty"`
}

func (a *api) listOrders(w http.ResponseWriter, r *http.Request) {
	q, p := parsePageQuery(r.URL.RawQuery)
	if p != nil {
		a.writeError(w, r, p)
		return
	}
	// One more than asked for tells whether there is a next page.
	orders, err := a.store.customerOrders(r.Context(), q.customerID, q.before, q.limit+1)
	if err != nil {
		a.writeError(w, r, err)
		return
	}
	page := orderPage{Orders: orders}
	if len(orders) > q.limit {
		page.Orders = orders[:q.limit]
		if page.NextCursor, err = cursorAfter(page.Orders[q.limit-1].ID); err != nil {
			a.writeError(w, r, err)
			return
		}
	}
	data, err := json.Marshal(page)
	if err != nil {
		a.writeError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, data)
}

// readBody reads the body of a request: JSON, not compressed, at most maxBody.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *problem.Problem) {
	if !isJSON(r.Header.Get("Content-Type")) {
		return nil, problem.New(http.StatusUnsupportedMediaType,
			"send the order with Content-Type: application/json, in UTF-8; with curl that is curl --json '{…}'")
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, problem.New(http.StatusUnsupportedMediaType, "send the order without Content-Encoding; with curl that is curl --json '{…}'")
	}
	tooLarge := func() *problem.Problem {
		return problem.New(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxBody)
	}
	if r.ContentLength > maxBody { // known before a client that expects 100-continue has sent it
		return nil, tooLarge()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded): // the server's own time limit for a request
		w.Header().Set("Connection", "close")
		return nil, problem.New(http.StatusRequestTimeout, "the body did not arrive in time")
	default:
		return nil, problem.New(http.StatusBadRequest, "the body could not be read to its end")
	}
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8")
}

// parseID reads an order's id: a UUID in its usual form of 36 characters.
func parseID(s string) (uuid.UUID, error) {
	if len(s) != 36 {
		return uuid.Nil, errNotFound
	}
	return uuid.Parse(s)
}

func writeJSON(w http.ResponseWriter, status int, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the client may have gone away
}

// writeError answers with a problem. What the error says beyond that goes to the log only.
func (a *api) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if p, ok := errors.AsType[*problem.Problem](err); ok {
		p.Write(w)
		return
	}
	if e, ok := errors.AsType[*unavailableError](err); ok {
		a.writeUnavailable(w, r, e)
		return
	}
	var p *problem.Problem
	switch {
	case errors.Is(err, errNotFound):
		p = problem.New(http.StatusNotFound, "there is no order with this id")
	case errors.Is(err, errKeyBusy):
		p = problem.New(http.StatusConflict, "another request with this Idempotency-Key is at work: try again in a moment")
		p.RetryAfter = retryBusy
	case errors.Is(err, errKeyReused):
		p = problem.New(http.StatusUnprocessableEntity, "this Idempotency-Key was used for a different order: take a new key for a new order")
	default:
		a.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err.Error())
		p = problem.New(http.StatusInternalServerError, "something went wrong on our side")
	}
	p.Write(w)
}

func (a *api) writeUnavailable(w http.ResponseWriter, r *http.Request, e *unavailableError) {
	p := problem.New(http.StatusServiceUnavailable, "the database does not answer; nothing was stored: try again later")
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		p = problem.New(http.StatusServiceUnavailable, "the database does not answer: try again later")
	}
	if e.orderID != "" {
		p = problem.New(http.StatusServiceUnavailable, "the database did not say whether order %s was placed: ask for /orders/%[1]s before you send the order again, "+
			"or send it again with the same Idempotency-Key", e.orderID)
	}
	if clientGone := errors.Is(r.Context().Err(), context.Canceled); (!clientGone || e.orderID != "") && a.quiet.due() {
		a.log.Warn("database unavailable", "method", r.Method, "path", r.URL.Path, "order_id", e.orderID, "error", e.Error())
	}
	p.RetryAfter = retryAway
	p.Write(w)
}
