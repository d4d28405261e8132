package localserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// ErrPortTaken says that a port that was asked for is in use.
var ErrPortTaken = errors.New("port is taken by another program")

// startTries is how many free ports are tried when another program is quicker to take them.
const startTries = 10

const (
	firstPort = 15000
	ports     = 17000
)

// nextPort counts the ports that were looked at. Each process starts at another one, so that several seldom meet.
var nextPort atomic.Int64

func init() { nextPort.Store(rand.Int64N(ports)) }

// FreePort returns a port that nobody listens on, and that it has not returned before in this process. It lies below the range
// that Linux and macOS take the ports of outgoing connections from: a client that dials a dead server over and over could
// otherwise get the server's own port as its own, and talk to itself.
func FreePort() (int, error) {
	for range 100 {
		port := int(firstPort + nextPort.Add(1)%ports)
		if portFree(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: a hundred between %d and %d are taken", firstPort, firstPort+ports)
}

func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// onPort calls start with port, or with free ports until one is not taken by somebody else meanwhile.
func onPort(port int, start func(port int) error) error {
	if port != 0 {
		if !portFree(port) {
			return fmt.Errorf("port %d: %w", port, ErrPortTaken)
		}
		return start(port)
	}
	var err error
	for range startTries {
		if port, err = FreePort(); err != nil {
			return err
		}
		if err = start(port); !errors.Is(err, ErrPortTaken) {
			return err
		}
	}
	return err
}
