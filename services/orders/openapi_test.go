package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-chi/chi/v5"

	"example.com/orderfanout/internal/ops"
)

// described is openapi.yaml as a validator reads it.
var described = sync.OnceValue(func() *contract {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(openAPI)
	if err != nil {
		panic(err)
	}
	return &contract{doc}
})

type contract struct{ doc *openapi3.T }

// hold fails the test where the answer is not what openapi.yaml says. Every answer in these tests is held to it.
func (c *contract) hold(t testing.TB, req *http.Request, res *http.Response, body []byte) {
	t.Helper()
	input := c.input(req)
	if input == nil || req.Method == http.MethodHead {
		return // no such route, or an answer without its body
	}
	err := openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 res.StatusCode,
		Header:                 res.Header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                input.Options,
	})
	if err != nil {
		t.Errorf("%s %s: %s: against openapi.yaml: %v", req.Method, req.URL, res.Status, err)
	}
}

// takes returns nil where openapi.yaml allows the request.
func (c *contract) takes(req *http.Request) error {
	return openapi3filter.ValidateRequest(context.Background(), c.input(req))
}

// input finds the operation that the request is for, or returns nil.
func (c *contract) input(req *http.Request) *openapi3filter.RequestValidationInput {
	path, params := req.URL.Path, map[string]string{}
	if id, ok := strings.CutPrefix(path, "/orders/"); ok {
		path, params["id"] = "/orders/{id}", id
	}
	item := c.doc.Paths.Value(path)
	if item == nil || item.GetOperation(req.Method) == nil {
		return nil
	}
	return &openapi3filter.RequestValidationInput{
		Request:     req,
		PathParams:  params,
		QueryParams: req.URL.Query(),
		Route:       &routers.Route{Spec: c.doc, Path: path, PathItem: item, Method: req.Method, Operation: item.GetOperation(req.Method)},
		Options:     &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
}

func TestOpenAPIIsValid(t *testing.T) {
	t.Parallel()
	doc := described().doc
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("it is of version %s", doc.OpenAPI)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestOpenAPIHasTheRoutes holds the document to the router, both ways.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	t.Parallel()
	svc, err := ops.New("orders", ops.Config{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(svc.Close)
	public, private := svc.Router()
	(&api{}).routes(public, private)
	var routes []string
	err = chi.Walk(public, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes = append(routes, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for path, item := range described().doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(routes)
	slices.Sort(documented)
	if !slices.Equal(routes, documented) {
		t.Errorf("the router has   %q\nthe document has %q", routes, documented)
	}
}

// TestOpenAPITakesWhatTheServiceTakes sends orders to both.
func TestOpenAPITakesWhatTheServiceTakes(t *testing.T) {
	t.Parallel()
	s := startService(t, nil)
	for body, takes := range map[string]bool{
		goodOrder:                                              true,
		orderWith(t, "1250", "0"):                              true,
		orderWith(t, "1250", "-1"):                             false,
		orderWith(t, "1250", "1.5"):                            false,
		orderWith(t, "1250", "1000000001"):                     false,
		orderWith(t, ":2,", ":0,"):                             false,
		orderWith(t, ":2,", ":10001,"):                         false,
		orderWith(t, "c-42", ""):                               false,
		orderWith(t, "c-42", "c 42"):                           false,
		orderWith(t, "EUR", "eur"):                             false,
		orderWith(t, `"currency":"EUR",`, ""):                  false,
		orderWith(t, `{"sku"`, `{"note":1,"sku"`):              false,
		orderWith(t, `{"customer_id"`, `{"x":1,"customer_id"`): false,
		`{}`: false,
		`[]`: false,
	} {
		req, err := http.NewRequest(http.MethodPost, s.url+"/orders", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		documented := described().takes(req) == nil
		a := s.do(http.MethodPost, "/orders", body)
		if documented != takes || (a.StatusCode == 201) != takes {
			t.Errorf("%s: the document takes it: %t, the service answers %d; want %t of both", body, documented, a.StatusCode, takes)
		}
	}
	for path, takes := range map[string]bool{
		"/orders?customer_id=c-42":           true,
		"/orders?customer_id=c-42&limit=100": true,
		"/orders?customer_id=c-42&limit=101": false,
		"/orders?customer_id=c-42&limit=x":   false,
		"/orders?limit=5":                    false,
	} {
		req, err := http.NewRequest(http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		documented := described().takes(req) == nil
		a := s.do(http.MethodGet, path, "")
		if documented != takes || (a.StatusCode == 200) != takes {
			t.Errorf("%s: the document takes it: %t, the service answers %d; want %t of both", path, documented, a.StatusCode, takes)
		}
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	t.Parallel()
	s := startService(t, map[string]string{"API_TOKEN": "secret"})
	a := s.get(200, "/openapi.yaml")
	if !bytes.Equal(a.body, openAPI) || a.Header.Get("Content-Type") != "application/yaml" {
		t.Errorf("got %s, %d bytes", a.Header.Get("Content-Type"), len(a.body))
	}
}
