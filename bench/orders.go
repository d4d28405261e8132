package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/internal/localserver"
)

const httpClients = 64

// orders: POST /orders, all of its checks and the relay on, beside Postgres by itself.
func orders() work {
	const bare = "pgbench, an order as one statement"
	return work{
		name: "orders", unit: "orders/s",
		contenders: []contender{
			{name: "ours, POST /orders", settings: fmt.Sprintf("the defaults; %d clients that keep their connections, on the same machine; all of them published", httpClients), n: 40_000,
				services: []string{"orders"}, run: postOrders, verify: wantOrders},
			{name: bare, settings: "order, item and outbox row in one prepared statement, 16 clients, 2 threads", n: 20_000,
				run: pgbench, verify: wantOrderRows},
		},
		goals: []goal{{who: "ours, POST /orders", against: bare, least: 1.5}},
	}
}

// postOrders measures from the first request to the last answer. CPU time is of all, from the service's start to its end.
func postOrders(ctx context.Context, c *child) error {
	cpu := cpuTime()
	service, err := c.service(ctx, "orders")
	if err != nil {
		return err
	}
	addr := strings.TrimPrefix(service.url, "http://")
	conns := make([]*httpConn, httpClients)
	for i := range conns {
		if conns[i], err = dialHTTP(addr); err != nil {
			return errors.Join(err, service.stop())
		}
		defer conns[i].Close()
	}
	var next atomic.Int64
	err = c.measure(func() error {
		errs := make(chan error, len(conns))
		var wg sync.WaitGroup
		for _, conn := range conns {
			wg.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= c.n {
						errs <- nil
						return
					}
					if err := conn.post(i); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		wg.Wait()
		for range conns {
			if err := <-errs; err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return errors.Join(err, service.stop())
	}
	if err := c.awaitPublished(ctx); err != nil {
		return errors.Join(err, service.stop())
	}
	err = service.stop()
	c.cpu = cpuTime() - cpu
	return err
}

// awaitPublished waits until no row is left in the outbox.
func (c *child) awaitPublished(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.postgresURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for left := 1; left > 0; time.Sleep(10 * time.Millisecond) {
		if err := conn.QueryRow(ctx, "select count(*) from outbox where published_at is null").Scan(&left); err != nil {
			return err
		}
	}
	return nil
}

// httpConn is a client that costs as little as it can: the machine is for the server.
type httpConn struct {
	net.Conn
	in   *bufio.Reader
	body []byte
	out  []byte
	got  []byte // the body of the last answer
}

func dialHTTP(addr string) (*httpConn, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &httpConn{Conn: conn, in: bufio.NewReader(conn)}, nil
}

// post places the i-th order and wants 201.
func (h *httpConn) post(i int) error {
	h.body = fmt.Appendf(h.body[:0], `{"customer_id":"%s","email":"customer.%06d@example.com","currency":"EUR","items":[{"sku":"tea-%03d","quantity":10,"unit_price":%d}]}`,
		customer(i), i%customers, i%100, total/10)
	h.out = fmt.Appendf(h.out[:0], "POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(h.body), h.body)
	if _, err := h.Write(h.out); err != nil {
		return err
	}
	return h.answer()
}

// answer reads one answer: its head, and as much as Content-Length says.
func (h *httpConn) answer() error {
	status, length := "", -1
	for {
		line, err := h.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		switch text := strings.TrimSpace(string(line)); {
		case status == "":
			status = text
		case text == "":
			if length < 0 {
				return fmt.Errorf("%s without a Content-Length", status)
			}
			h.got = slices.Grow(h.got[:0], length)[:length]
			if _, err := io.ReadFull(h.in, h.got); err != nil {
				return err
			}
			if !strings.HasPrefix(status, "HTTP/1.1 201 ") {
				return errors.New(status)
			}
			return nil
		default:
			if name, value, ok := strings.Cut(text, ":"); ok && http.CanonicalHeaderKey(name) == "Content-Length" {
				if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
					return err
				}
			}
		}
	}
}

// pgbenchScript is one order. Its ids are made by Postgres, as there is no client to make them.
const pgbenchScript = `\set n random(1, 1000)
with placed as (
  insert into orders (id, customer_id, email, currency, total, status, created_at, event_id)
  values (gen_random_uuid(), 'c-' || :n, 'customer.' || :n || '@example.com', 'EUR', 12500, 'placed', now(), gen_random_uuid()::text)
  returning id, customer_id, event_id, created_at
), item as (
  insert into order_items (order_id, position, sku, quantity, unit_price) select id, 1, 'tea-' || (:n % 100), 10, 1250 from placed
)
insert into outbox (event_id, source, type, time, subject, partition_key, data_content_type, data_schema, trace_parent, data)
select event_id, '/orders', 'order.placed.v1', created_at, id::text, customer_id, 'application/json', '', '', convert_to(repeat('x', 300), 'UTF8') from placed;
`

// pgbench runs c.n orders through Postgres' own load generator.
func pgbench(ctx context.Context, c *child) error {
	program, err := pgbenchProgram()
	if err != nil {
		return err
	}
	script := filepath.Join(os.TempDir(), fmt.Sprintf("orderfanout-pgbench-%d.sql", os.Getpid()))
	if err := os.WriteFile(script, []byte(pgbenchScript), 0o600); err != nil {
		return err
	}
	defer os.Remove(script)
	const clients = 16
	cmd := exec.CommandContext(ctx, program, "--no-vacuum", "--protocol=prepared", "--client="+strconv.Itoa(clients), "--jobs=2",
		"--transactions="+strconv.Itoa(c.n/clients), "--file="+script, c.postgresURL)
	var out []byte
	err = c.measure(func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Errorf("pgbench: %w: %s", err, out)
	}
	return nil
}

// pgbenchProgram is found beside the other programs of Postgres.
func pgbenchProgram() (string, error) {
	if path, err := exec.LookPath("pgbench"); err == nil {
		return path, nil
	}
	dir, err := localserver.PostgresBin()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "pgbench")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("pgbench is missing: it comes with PostgreSQL (Debian: postgresql; Alpine: postgresql-contrib): %w", err)
	}
	return path, nil
}

func wantOrders(ctx context.Context, s *servers, n int) error {
	if err := wantEntries(ctx, s, n); err != nil {
		return err
	}
	return wantOrderRows(ctx, s, n)
}

// wantOrderRows wants n orders, each with its item and its event.
func wantOrderRows(ctx context.Context, s *servers, n int) error {
	conn, err := pgx.Connect(ctx, s.postgresURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var orders, items, events int
	if err := conn.QueryRow(ctx, "select (select count(*) from orders), (select count(*) from order_items), (select count(*) from outbox)").Scan(&orders, &items, &events); err != nil {
		return err
	}
	if orders != n || items != n || events != n {
		return fmt.Errorf("%d orders, %d items, %d events; want %d of each", orders, items, events, n)
	}
	return nil
}
