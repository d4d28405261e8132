package e2e

import (
	"context"

	"example.com/orderfanout/internal/books"
)

// settled reports whether every event is published and every group has read and acknowledged all.
func (s *system) settled() bool {
	m, err := books.ReadMotion(context.Background(), s.db, s.client)
	return err == nil && m.Settled()
}

// stats is the answer of GET /stats, as far as the tests need it.
type stats struct {
	Orders  int64            `json:"orders"`
	Revenue map[string]int64 `json:"revenue"`
}

// balanced waits until all is settled and checks the books: each order credited, counted and confirmed once. mails may be
// repeated up to the given number.
func (s *system) balanced(analytics *instance, repeats int) {
	s.Helper()
	s.eventually("all is settled", s.settled)
	orders := s.count("select count(*) from orders")
	for what, query := range map[string]string{
		"outbox rows":    "select count(*) from outbox",
		"processed rows": "select count(*) from processed where consumer = 'bonus'",
		"ledger rows":    "select count(*) from bonus_ledger",
		"orders with their own ledger row and points": "select count(*) from orders o join bonus_ledger l on l.order_id = o.id and l.event_id = o.event_id and l.points = o.total / 100",
	} {
		if n := s.count(query); n != orders {
			s.Errorf("%d %s for %d orders", n, what, orders)
		}
	}
	if n := s.count(`select count(*) from bonus_accounts a where balance <> (select sum(points) from bonus_ledger l where l.customer_id = a.customer_id)`); n != 0 {
		s.Errorf("%d accounts differ from their ledger", n)
	}
	var st stats
	if err := s.get(analytics.url+"/stats", &st); err != nil {
		s.Fatal(err)
	}
	if sum := s.count("select coalesce(sum(total), 0) from orders"); st.Orders != orders || st.Revenue["EUR"] != sum {
		s.Errorf("statistics %+v, want %d orders and %d", st, orders, sum)
	}
	mails, again := s.mailCount()
	if int64(mails-again) != orders || again > repeats {
		s.Errorf("%d mails with %d repeats for %d orders, want at most %d repeats", mails, again, orders, repeats)
	}
}
