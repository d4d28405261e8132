package redisstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	errNameTaken = errors.New("a live consumer has this name")
	// errNameDisputed: somebody has just come under this name, who will go again if he looks around.
	errNameDisputed = errors.New("another consumer comes under this name")
)

// nameplate knows which of the connections under this consumer's name are its own. A killed process's connections are
// gone from CLIENT LIST at once, a frozen one's stay.
type nameplate struct {
	name string // of the connections
	mu   sync.Mutex
	own  map[int64]string // addresses by id: ids begin again when the server restarts
}

// connection is a line of CLIENT LIST (https://redis.io/docs/latest/commands/client-list/).
type connection struct {
	id         int64
	addr, name string
	age        time.Duration
}

// add is the OnConnect of the consumer's clients. It returns the connection's id.
func (n *nameplate) add(ctx context.Context, cn *redis.Conn) (int64, error) {
	info := redis.NewStringCmd(ctx, "client", "info")
	if err := cn.Process(ctx, info); err != nil {
		return 0, fmt.Errorf("client info: %w", err)
	}
	c := parseConnection(info.Val())
	n.mu.Lock()
	n.own[c.id] = c.addr // before it shows in CLIENT LIST under the name
	n.mu.Unlock()
	if err := cn.ClientSetName(ctx, n.name).Err(); err != nil {
		return 0, fmt.Errorf("client setname: %w", err)
	}
	return c.id, nil
}

// check looks for other consumers under the name. A newcomer gives way to any; two that come at once both give way, which harms
// nobody. Who holds the name gives way to one that holds it too (after a restart of the server both may connect again),
// but not to a newcomer, who has until answerTime to look around: of him it says errNameDisputed.
func (n *nameplate) check(ctx context.Context, client *redis.Client, newcomer bool) error {
	n.mu.Lock()
	closed := maps.Clone(n.own) // those of them that are not in the list; what connects from now on may not be in it yet
	n.mu.Unlock()
	list, err := client.ClientList(ctx).Result()
	if err != nil {
		return fmt.Errorf("client list: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for line := range strings.Lines(list) {
		c := parseConnection(line)
		switch addr, known := n.own[c.id]; {
		case known && addr == c.addr:
			delete(closed, c.id)
		case c.name != n.name:
		case newcomer || c.age > answerTime:
			return errNameTaken
		default:
			err = errNameDisputed
		}
	}
	for id := range closed {
		delete(n.own, id)
	}
	return err
}

func parseConnection(line string) (c connection) {
	for field := range strings.FieldsSeq(line) {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "id":
			c.id, _ = strconv.ParseInt(value, 10, 64)
		case "addr":
			c.addr = value
		case "name":
			c.name = value
		case "age":
			seconds, _ := strconv.ParseInt(value, 10, 64)
			c.age = time.Duration(seconds) * time.Second
		}
	}
	return c
}
