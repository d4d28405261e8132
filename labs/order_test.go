package main

import "testing"

func TestOrder(t *testing.T) {
	c := runLab(t, "order")
	all, within := "wrong pairs, all", "wrong pairs within a customer"
	c.want(t, "1 stream, 1 consumer", all, 0)
	c.want(t, "1 stream, 1 consumer", within, 0)
	c.wantSome(t, "1 stream, 4 consumers", within)
	for _, sharded := range []string{"4 shards, 1 consumer each", "4 shards, a hot customer"} {
		c.wantSome(t, sharded, all)
		c.want(t, sharded, within, 0)
	}
	for what := range c {
		c.want(t, what, "finished", jobs)
	}
	if even, hot := c.number(t, "4 shards, 1 consumer each", "busiest shard"), c.number(t, "4 shards, a hot customer", "busiest shard"); hot <= even {
		t.Errorf("the busiest shard has %d entries with a hot customer and %d without", hot, even)
	}
}
