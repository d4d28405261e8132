package ops

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"example.com/orderfanout/broker"
	"example.com/orderfanout/broker/redisstream"
)

// collector is an OTLP/HTTP collector that keeps the spans by name.
type collector struct {
	mu       sync.Mutex
	spans    map[string]*otlp.Span
	services map[string]bool
}

func newCollector(t *testing.T) (*collector, string) {
	t.Helper()
	c := &collector{spans: make(map[string]*otlp.Span), services: make(map[string]bool)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req coltrace.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &req) != nil {
			t.Errorf("export to %s: %v", r.URL.Path, err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, rs := range req.ResourceSpans {
			for _, a := range rs.Resource.Attributes {
				if a.Key == "service.name" {
					c.services[a.Value.GetStringValue()] = true
				}
			}
			for _, ss := range rs.ScopeSpans {
				for _, span := range ss.Spans {
					c.spans[span.Name] = span
				}
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(srv.Close)
	return c, srv.URL
}

// One trace goes from the client's request through the event to the handler.
func TestOneTraceFromRequestToHandler(t *testing.T) {
	t.Parallel()
	col, url := newCollector(t)
	s, _ := newService(t, Config{TraceEndpoint: url + "/"})
	r, _ := s.Router()
	var parent string
	r.Post("/orders", func(w http.ResponseWriter, r *http.Request) { parent = TraceParent(r.Context()) })
	req := httptest.NewRequest("POST", "/orders", nil)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	req.Header.Set("traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	r.ServeHTTP(httptest.NewRecorder(), req)
	if !strings.HasPrefix(parent, "00-"+trace+"-") || strings.Contains(parent, "00f067aa0ba902b7") || !strings.HasSuffix(parent, "-01") {
		t.Fatalf("TraceParent = %q, want the client's trace and our span", parent)
	}

	failure := errors.New("broken")
	cfg := redisstream.Config{Stream: "orders", Group: "bonus", Handle: func(ctx context.Context, d *broker.Delivery) error {
		if got := TraceParent(ctx); !strings.Contains(got, trace) {
			t.Errorf("the handler's trace = %q", got)
		}
		return failure
	}}
	s.Observe(&cfg)
	d := &broker.Delivery{Event: broker.Event{ID: "e-1", TraceParent: parent}, Delivery: 2, Attempt: 1}
	if err := cfg.Handle(t.Context(), d); !errors.Is(err, failure) {
		t.Errorf("Handle = %v, want the handler's own error", err)
	}
	s.Close()

	col.mu.Lock()
	defer col.mu.Unlock()
	request, process := col.spans["POST /orders"], col.spans["process orders"]
	if request == nil || process == nil || !col.services["bonus"] {
		t.Fatalf("spans = %v of %v", col.spans, col.services)
	}
	if string(process.TraceId) != string(request.TraceId) || string(process.ParentSpanId) != string(request.SpanId) {
		t.Errorf("the handler's span is not a child of the request's:\n%v\n%v", request, process)
	}
	if process.Kind != otlp.Span_SPAN_KIND_CONSUMER || process.Status.Code != otlp.Status_STATUS_CODE_ERROR {
		t.Errorf("span = %v", process)
	}
}

func TestABatchLinksToEachTrace(t *testing.T) {
	t.Parallel()
	col, url := newCollector(t)
	s, _ := newService(t, Config{TraceEndpoint: url})
	cfg := redisstream.Config{Stream: "orders", Group: "bonus", HandleBatch: func(context.Context, []*broker.Delivery) error {
		return broker.Defer(time.Second)
	}}
	s.Observe(&cfg)
	var ds []*broker.Delivery
	for _, parent := range []string{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "", "nonsense", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
		ds = append(ds, &broker.Delivery{Event: broker.Event{ID: "e", TraceParent: parent}})
	}
	_ = cfg.HandleBatch(t.Context(), ds)
	s.Close()
	col.mu.Lock()
	defer col.mu.Unlock()
	span := col.spans["process orders"]
	if span == nil || len(span.Links) != 2 || span.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
		t.Errorf("span = %v, want two links and no error", span)
	}
}

// Without a collector the trace is still passed on.
func TestTraceGoesOnWithoutACollector(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Config{})
	r, _ := s.Router()
	var parent string
	r.Get("/", func(w http.ResponseWriter, r *http.Request) { parent = TraceParent(r.Context()) })
	get(t, r, "/")
	if len(parent) != 55 || !strings.HasSuffix(parent, "-00") {
		t.Errorf("TraceParent = %q, want one that is not sampled", parent)
	}
	if got := TraceParent(context.Background()); got != "" {
		t.Errorf("TraceParent without a span = %q", got)
	}
}

func TestACollectorThatIsAwayDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	s, log := newService(t, Config{})
	handle := s.logTraceErrors()
	for range 100 {
		handle(errors.New("refused"))
	}
	if n := strings.Count(log.String(), "refused"); n != 1 {
		t.Errorf("%d lines, want one", n)
	}
}
