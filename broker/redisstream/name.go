package redisstream

import (
	"context"
	"errors"
	"fmt"
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
	defer n.mu.Unlock()
	n.own[id] = true
	return id, nil
}

// check returns errNameTaken where an older connection than all of this consumer's has the same name. Of two consumers
// that look at each other, exactly one gives way.
func (n *nameplate) check(ctx context.Context, client *redis.Client) error {
	list, err := client.ClientList(ctx).Result()
	if err != nil {
		return fmt.Errorf("client list: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	live := map[int64]bool{}
	var oldest int64
	for line := range strings.Lines(list) {
		id, ok := named(line, n.name)
		if !ok {
			continue
		}
		live[id] = n.own[id]
		if oldest == 0 || id < oldest {
			oldest = id
		}
	}
	for id := range n.own {
		if !live[id] {
			delete(n.own, id) // closed
		}
	}
	if oldest != 0 && !live[oldest] {
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
	return id, ok && id != 0
}
