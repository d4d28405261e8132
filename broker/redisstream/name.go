package redisstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

var errNameTaken = errors.New("a live consumer has this name")

// nameplate knows which of the connections under this consumer's name are its own. A killed process's connections are
// gone from CLIENT LIST at once, a frozen one's stay.
type nameplate struct {
	name string // of the connections
	mu   sync.Mutex
	own  map[int64]bool
}

// add is the OnConnect of the consumer's clients. It asks for the connection's id
// (https://redis.io/docs/latest/commands/client-id/).
func (n *nameplate) add(ctx context.Context, cn *redis.Conn) (int64, error) {
	id, err := cn.ClientID(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("client id: %w", err)
	}
	n.mu.Lock()
	n.own[id] = true // before it shows in CLIENT LIST under the name
	n.mu.Unlock()
	if err := cn.ClientSetName(ctx, n.name).Err(); err != nil {
		return 0, fmt.Errorf("client setname: %w", err)
	}
	return id, nil
}

// check returns errNameTaken where an older connection than all of this consumer's has the same name. Of two consumers
// that look at each other, exactly one gives way.
func (n *nameplate) check(ctx context.Context, client *redis.Client) error {
	n.mu.Lock()
	closed := maps.Clone(n.own) // those of them that are not in the list; what connects from now on may not be in it yet
	n.mu.Unlock()
	list, err := client.ClientList(ctx).Result()
	if err != nil {
		return fmt.Errorf("client list: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var oldest int64
	for line := range strings.Lines(list) {
		id, ok := named(line, n.name)
		delete(closed, id)
		if ok && (oldest == 0 || id < oldest) {
			oldest = id
		}
	}
	for id := range closed {
		delete(n.own, id)
	}
	if oldest != 0 && !n.own[oldest] {
		return errNameTaken
	}
	return nil
}

// named returns the id in a line of CLIENT LIST, and whether the connection has the name.
func named(line, name string) (id int64, ok bool) {
	for field := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "id":
			id, _ = strconv.ParseInt(value, 10, 64)
		case "name":
			ok = value == name
		}
	}
	return id, ok
}
