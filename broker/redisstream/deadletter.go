package redisstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker"
)

// ErrNoDeadLetter says that there is no dead letter with that id: it was redriven or discarded before.
var ErrNoDeadLetter = errors.New("no such dead letter")

// DeadLetter is an entry that failed for good in one group.
type DeadLetter struct {
	ID       string       `json:"id"` // of the dead letter itself
	Event    broker.Event `json:"-"`
	Fields   []string     `json:"fields"` // names and values of the original entry
	Reason   string       `json:"reason"` // malformed, permanent, max_attempts or max_deliveries
	Error    string       `json:"error"`
	Attempts int          `json:"attempts"`
	EntryID  string       `json:"entry_id"` // of the original entry
	Consumer string       `json:"consumer"`
	At       time.Time    `json:"at"`
}

// DeadLetters are the dead letters of one group. They are never trimmed by themselves.
type DeadLetters struct {
	client        *redis.Client
	stream, group string
}

// NewDeadLetters returns the dead letters of a group; client stays the caller's.
func NewDeadLetters(client *redis.Client, stream, group string) *DeadLetters {
	return &DeadLetters{client, stream, group}
}

// List returns up to count dead letters, at least 1, oldest first, that come after the id ("" from the start).
func (d *DeadLetters) List(ctx context.Context, after string, count int) ([]DeadLetter, error) {
	if count < 1 {
		return nil, fmt.Errorf("list dead letters of group %s: count %d is less than 1", d.group, count)
	}
	start := "-"
	if after != "" {
		if err := d.isID(after); err != nil {
			return nil, err
		}
		start = "(" + after
	}
	return d.between(ctx, start, "+", count)
}

// isID returns [ErrNoDeadLetter] where no dead letter can have this id.
func (d *DeadLetters) isID(id string) error {
	ms, seq, _ := strings.Cut(id, "-")
	for _, part := range []string{ms, seq} {
		if _, err := strconv.ParseUint(part, 10, 64); err != nil {
			return fmt.Errorf("%w: %q of group %s, an id is like 1700000000000-0", ErrNoDeadLetter, id, d.group)
		}
	}
	return nil
}

// Get returns one dead letter, or [ErrNoDeadLetter].
func (d *DeadLetters) Get(ctx context.Context, id string) (DeadLetter, error) {
	if err := d.isID(id); err != nil {
		return DeadLetter{}, err
	}
	list, err := d.between(ctx, id, id, 1)
	if err != nil {
		return DeadLetter{}, err
	}
	if len(list) == 0 {
		return DeadLetter{}, fmt.Errorf("%w: %s of group %s", ErrNoDeadLetter, id, d.group)
	}
	return list[0], nil
}

func (d *DeadLetters) between(ctx context.Context, start, end string, count int) ([]DeadLetter, error) {
	reply, err := d.client.Do(ctx, "XRANGE", DeadKey(d.stream, d.group), start, end, "COUNT", count).Slice()
	if err != nil {
		return nil, fmt.Errorf("list dead letters of group %s: %w", d.group, err)
	}
	var out []DeadLetter
	for _, item := range reply {
		pair, ok := item.([]any)
		if !ok || len(pair) != 2 {
			return nil, errReply
		}
		id, _ := pair[0].(string)
		out = append(out, newDeadLetter(id, texts(pair[1])))
	}
	return out, nil
}

func newDeadLetter(id string, all []string) DeadLetter {
	l := DeadLetter{ID: id, Fields: []string{}}
	for i := 0; i+1 < len(all); i += 2 {
		v := all[i+1]
		switch all[i] {
		case "dead_reason":
			l.Reason = v
		case "dead_error":
			l.Error = v
		case "dead_attempts":
			l.Attempts, _ = strconv.Atoi(v)
		case "dead_entry_id":
			l.EntryID = v
		case "dead_consumer":
			l.Consumer = v
		case "dead_at":
			l.At, _ = time.Parse(time.RFC3339Nano, v)
		default:
			l.Fields = append(l.Fields, all[i], v)
		}
	}
	l.Event = decode(l.Fields)
	return l
}

// Redrive gives a dead letter back to its group, and to no other, as a new entry with fresh counts, and returns the
// entry's id. The dead letter is gone then; doing it twice returns [ErrNoDeadLetter] and does nothing.
func (d *DeadLetters) Redrive(ctx context.Context, id string) (entryID string, err error) {
	if err := d.isID(id); err != nil {
		return "", err
	}
	entryID, err = redriveScript.Run(ctx, d.client, []string{DeadKey(d.stream, d.group), d.stream}, id, d.group).Text()
	switch {
	case err != nil && strings.Contains(err.Error(), "no fields"):
		return "", fmt.Errorf("redrive %s of group %s: its entry had more fields than can be given back; see dead_fields", id, d.group)
	case err != nil:
		return "", fmt.Errorf("redrive %s of group %s: %w", id, d.group, err)
	case entryID == "":
		return "", fmt.Errorf("%w: %s of group %s", ErrNoDeadLetter, id, d.group)
	}
	return entryID, nil
}

// Discard removes a dead letter for good, or returns [ErrNoDeadLetter].
func (d *DeadLetters) Discard(ctx context.Context, id string) error {
	if err := d.isID(id); err != nil {
		return err
	}
	n, err := d.client.XDel(ctx, DeadKey(d.stream, d.group), id).Result()
	if err != nil {
		return fmt.Errorf("discard %s of group %s: %w", id, d.group, err)
	}
	if n == 0 {
		return fmt.Errorf("%w: %s of group %s", ErrNoDeadLetter, id, d.group)
	}
	return nil
}

// redriveScript moves a dead letter back to the stream: added there and deleted here, or neither.
//
//	KEYS  dead letters, stream
//	ARGV  id of the dead letter, group
//	reply the id of the new entry, "" where there is no such dead letter
var redriveScript = redis.NewScript(`
local letter = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not letter then return '' end
local add, fields = {'XADD', KEYS[2], '*'}, letter[2]
for i = 1, #fields, 2 do
  if not string.match(fields[i], '^dead_') and fields[i] ~= 'onlygroup' then
    add[#add + 1] = fields[i]
    add[#add + 1] = fields[i + 1]
  end
end
if #add == 3 then return redis.error_reply('ERR the dead letter has no fields of its entry') end
add[#add + 1] = 'onlygroup'
add[#add + 1] = ARGV[2]
local id = redis.call(unpack(add))
redis.call('XDEL', KEYS[1], ARGV[1])
return id`)
