package books

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// pointWorth is how many minor units of an order's total make a point.
const pointWorth = 100

// judgeLedger says what is lost, and what is wrong in ledger and accounts. Each statement is of one moment.
func (r *reading) judgeLedger(ctx context.Context) error {
	g := r.groups[1]
	for id, o := range r.suspects[1] {
		g.Lost++
		note := nowhereNote(o)
		if r.events[id].at[1] == acked {
			note = "acknowledged, and not in the ledger"
		}
		add(&g.LostIDs, o.item(note))
	}
	for _, step := range []func(context.Context, *Group) error{r.creditedTwice, r.creditedWithoutOrder, r.wrongPoints, r.wrongBalances} {
		if err := step(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// creditedTwice finds orders with more than one ledger row. The ledger's key is the event, so these have several event ids.
func (r *reading) creditedTwice(ctx context.Context, g *Group) error {
	rows, err := r.db.Query(ctx, `
		select order_id::text, count(*), min(event_id), max(event_id)
		from bonus_ledger
		group by order_id
		having count(*) > 1
		order by order_id`)
	if err != nil {
		return fmt.Errorf("look for orders credited twice: %w", err)
	}
	var orderID, first, last string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&orderID, &n, &first, &last}, func() error {
		g.Twice += n - 1
		add(&g.TwiceIDs, Item{OrderID: orderID, EventID: first, Note: fmt.Sprintf("%d ledger rows, also for event %s", n, last)})
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for orders credited twice: %w", err)
	}
	return nil
}

// creditedWithoutOrder finds ledger rows of orders that do not exist. An order is committed before it is credited.
func (r *reading) creditedWithoutOrder(ctx context.Context, g *Group) error {
	rows, err := r.db.Query(ctx, `
		select l.order_id::text, l.event_id, count(*) over ()
		from bonus_ledger l
		where not exists (select from orders o where o.id = l.order_id)
		order by l.event_id
		limit $1`, sampleSize)
	if err != nil {
		return fmt.Errorf("look for credits without an order: %w", err)
	}
	var item Item
	_, err = pgx.ForEachRow(rows, []any{&item.OrderID, &item.EventID, &g.WithoutOrder}, func() error {
		add(&g.WithoutOrderIDs, item)
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for credits without an order: %w", err)
	}
	return nil
}

// wrongPoints finds ledger rows that are not what their order is worth, or are another customer's.
func (r *reading) wrongPoints(ctx context.Context, g *Group) error {
	return r.differences(ctx, g, "compare points with orders", `
		select 'points of order ' || o.id || case when l.customer_id <> o.customer_id then ' (credited to another customer)' else '' end,
		       o.total / $2::bigint, l.points, count(*) over ()
		from bonus_ledger l
		join orders o on o.id = l.order_id
		where l.points <> o.total / $2::bigint or l.customer_id <> o.customer_id
		order by l.event_id
		limit $1::bigint`, pointWorth)
}

// wrongBalances finds accounts that are not the sum of their ledger rows, and ledger rows without an account.
func (r *reading) wrongBalances(ctx context.Context, g *Group) error {
	return r.differences(ctx, g, "compare balances with the ledger", `
		with sums as (select customer_id, sum(points)::bigint as points from bonus_ledger group by customer_id)
		select 'balance of customer ' || customer_id, coalesce(s.points, 0), coalesce(a.balance, 0), count(*) over ()
		from sums s
		full join bonus_accounts a using (customer_id)
		where coalesce(s.points, 0) <> coalesce(a.balance, 0)
		order by customer_id
		limit $1::bigint`)
}

// differences notes what a statement finds: what it is, what it should be, what it is, how many there are in all. Its first
// parameter is how many to list.
func (r *reading) differences(ctx context.Context, g *Group, doing, sql string, args ...any) error {
	rows, err := r.db.Query(ctx, sql, append([]any{sampleSize}, args...)...)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	var d Difference
	var all, listed int64
	_, err = pgx.ForEachRow(rows, []any{&d.What, &d.Want, &d.Got, &all}, func() error {
		listed++
		g.differ(d.What, d.Want, d.Got)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	g.DifferenceCount += all - listed
	return nil
}
