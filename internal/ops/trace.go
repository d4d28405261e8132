package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"example.com/orderfanout/broker"
)

// startTraces makes the tracer. Without a collector spans have ids, so that a trace that began elsewhere goes on through
// us, but nothing is recorded.
func (s *Service) startTraces() error {
	res := resource.NewSchemaless(attribute.String("service.name", s.Name))
	opts := []sdktrace.TracerProviderOption{sdktrace.WithResource(res)}
	if s.cfg.TraceEndpoint == "" {
		opts = append(opts, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	} else {
		// The exporter reads the other OTEL_EXPORTER_OTLP_ variables (headers, certificate, time-out) by itself.
		url := strings.TrimRight(s.cfg.TraceEndpoint, "/") + "/v1/traces"
		exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(url))
		if err != nil {
			return fmt.Errorf("export traces to OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
		}
		opts = append(opts, sdktrace.WithBatcher(exporter))
		otel.SetErrorHandler(s.logTraceErrors())
	}
	s.provider = sdktrace.NewTracerProvider(opts...)
	s.tracer = s.provider.Tracer("example.com/orderfanout")
	return nil
}

// logTraceErrors logs one error a minute: a collector that is away is no reason to fill the log.
func (s *Service) logTraceErrors() otel.ErrorHandlerFunc {
	var next atomic.Int64
	return func(err error) {
		now := time.Now()
		if until := next.Load(); now.UnixNano() >= until && next.CompareAndSwap(until, now.Add(time.Minute).UnixNano()) {
			s.Log.Warn("traces are not exported", "error", err.Error())
		}
	}
}

var propagator = propagation.TraceContext{}

// TraceParent returns the trace of ctx as a W3C traceparent, for [broker.Event.TraceParent], or "" where there is none.
func TraceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagator.Inject(ctx, carrier)
	return carrier.Get("traceparent")
}

// withParent returns ctx with the traceparent as the parent of the spans to come.
func withParent(ctx context.Context, traceParent string) context.Context {
	return propagator.Extract(ctx, propagation.MapCarrier{"traceparent": traceParent})
}

// observeRequest puts a request in a span, as a child of what its traceparent header names, and in the metrics.
// Health and metrics are left out: they would drown the rest.
func (s *Service) observeRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/metrics":
			next.ServeHTTP(w, r)
			return
		}
		start := time.Now()
		ctx := propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := s.tracer.Start(ctx, "HTTP", trace.WithSpanKind(trace.SpanKindServer))
		ww := &statusWriter{ResponseWriter: w}
		defer func() {
			// The route is known only now. A path that has none, and its method, are the client's own words: no labels.
			method, route, status := "other", "none", ww.status
			if pattern := chi.RouteContext(ctx).RoutePattern(); pattern != "" && status != http.StatusMethodNotAllowed {
				method, route = r.Method, pattern
			}
			s.requests.WithLabelValues(method, route, strconv.Itoa(status)).Observe(time.Since(start).Seconds())
			span.SetName(method + " " + route)
			span.SetAttributes(
				attribute.String("http.request.method", method),
				attribute.String("http.route", route),
				attribute.Int("http.response.status_code", status))
			if status >= 500 || status == 0 {
				span.SetStatus(codes.Error, http.StatusText(status))
			}
			span.End()
		}()
		next.ServeHTTP(ww, r.WithContext(ctx))
	})
}

// consumerSpan are the attributes of https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/.
func consumerSpan(stream, group string, more ...attribute.KeyValue) trace.SpanStartEventOption {
	return trace.WithAttributes(append(more,
		attribute.String("messaging.system", "redis"),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.destination.name", stream),
		attribute.String("messaging.consumer.group.name", group))...)
}

func (s *Service) traceHandler(stream, group string, h broker.Handler) broker.Handler {
	return func(ctx context.Context, d *broker.Delivery) (err error) {
		ctx, span := s.tracer.Start(withParent(ctx, d.TraceParent), "process "+stream, trace.WithSpanKind(trace.SpanKindConsumer),
			consumerSpan(stream, group,
				attribute.String("messaging.message.id", d.ID),
				attribute.Int("delivery", d.Delivery), attribute.Int("attempt", d.Attempt)))
		defer func() { endSpan(span, err) }()
		return h(ctx, d)
	}
}

func (s *Service) traceBatch(stream, group string, h broker.BatchHandler) broker.BatchHandler {
	return func(ctx context.Context, ds []*broker.Delivery) (err error) {
		ctx, span := s.tracer.Start(ctx, "process "+stream, trace.WithSpanKind(trace.SpanKindConsumer),
			consumerSpan(stream, group, attribute.Int("messaging.batch.message_count", len(ds))))
		for _, d := range ds {
			if !span.IsRecording() {
				break // nobody collects them: reading the parents would be the dearest part of a quick handler
			}
			if parent := trace.SpanContextFromContext(withParent(context.Background(), d.TraceParent)); parent.IsValid() {
				span.AddLink(trace.Link{SpanContext: parent, Attributes: []attribute.KeyValue{attribute.String("messaging.message.id", d.ID)}})
			}
		}
		defer func() { endSpan(span, err) }()
		return h(ctx, ds)
	}
}

// endSpan ends the span. Work that was put off has not failed.
func endSpan(span trace.Span, err error) {
	if _, ok := errors.AsType[*broker.DeferError](err); err != nil && !ok {
		span.RecordError(err)
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
