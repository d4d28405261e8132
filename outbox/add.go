package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/orderfanout/broker"
)

// Add writes the events down in tx, in their order, with one statement. They are published after tx is committed: call
// [Relay.Wake] then. An event without an ID or a Type, or with an ID that the outbox has already, is an error, and tx must be rolled
// back. A zero Time means now.
func Add(ctx context.Context, tx pgx.Tx, events ...broker.Event) error {
	if len(events) == 0 {
		return nil
	}
	var c columns
	for i, e := range events {
		if err := e.Validate(); err != nil {
			return fmt.Errorf("add event %d of %d (%q) to the outbox: %w", i+1, len(events), e.ID, err)
		}
		c.add(e)
	}
	_, err := tx.Exec(ctx, `
		insert into outbox (event_id, source, type, time, subject, partition_key, data_content_type, data_schema,
		                    trace_parent, only_group, data)
		select event_id, source, type, time, subject, partition_key, data_content_type, data_schema,
		       trace_parent, only_group, data
		from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::text[],
		            $9::text[], $10::text[], $11::bytea[]) with ordinality
		     as e (event_id, source, type, time, subject, partition_key, data_content_type, data_schema,
		           trace_parent, only_group, data, position)
		order by position`,
		c.id, c.source, c.typ, c.time, c.subject, c.partitionKey, c.dataContentType, c.dataSchema,
		c.traceParent, c.onlyGroup, c.data)
	if err != nil {
		return fmt.Errorf("add %d events to the outbox, the first %s: %w", len(events), events[0].ID, err)
	}
	return nil
}

// columns are events turned by 90 degrees, as unnest wants them.
type columns struct {
	id, source, typ                          []string
	time                                     []time.Time
	subject, partitionKey                    []string
	dataContentType, dataSchema, traceParent []string
	onlyGroup                                []string
	data                                     [][]byte
}

func (c *columns) add(e broker.Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if e.Data == nil {
		e.Data = []byte{} // a nil slice would be NULL
	}
	c.id = append(c.id, e.ID)
	c.source = append(c.source, e.Source)
	c.typ = append(c.typ, e.Type)
	c.time = append(c.time, e.Time)
	c.subject = append(c.subject, e.Subject)
	c.partitionKey = append(c.partitionKey, e.PartitionKey)
	c.dataContentType = append(c.dataContentType, e.DataContentType)
	c.dataSchema = append(c.dataSchema, e.DataSchema)
	c.traceParent = append(c.traceParent, e.TraceParent)
	c.onlyGroup = append(c.onlyGroup, e.OnlyGroup)
	c.data = append(c.data, e.Data)
}
