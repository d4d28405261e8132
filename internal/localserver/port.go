package localserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// ErrPortTaken says that a port that was asked for is in use.
var ErrPortTaken = errors.New("port is taken by another program")

// startTries is how many free ports are tried when another program is quicker to take them.
const startTries = 10

// FreePort returns a port that nobody listens on. It lies below the range that Linux and macOS take the ports of outgoing
// connections from: a client that dials a dead server over and over could otherwise get the server's own port
// as its own, and talk to itself.
func FreePort() (int, error) {
	for range 100 {
		port := 15000 + rand.IntN(17000)
		if portFree(port) {
			return port, nil
		}
	}
	return 0, errors.New("find a free port: a hundred between 15000 and 32000 are taken")
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
