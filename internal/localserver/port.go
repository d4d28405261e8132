package localserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// ErrPortTaken says that a port that was asked for is in use.
var ErrPortTaken = errors.New("port is taken by another program")

// startTries is how many free ports are tried when another program is quicker to take them.
const startTries = 10

// The ports lie below the range that Linux and macOS take the ports of outgoing connections from: a client that dials a dead
// server over and over could otherwise get the server's own port as its own, and talk to itself.
const (
	firstPort = 15000
	blockSize = 200
	blocks    = 85
)

// mine are the blocks of ports that this process has taken. It listens on the first port of each for as long as it lives, so
// that no other process hands out a port of a server that is down only for a while.
var mine struct {
	mu    sync.Mutex
	kept  []net.Listener
	bases []int
	used  int // ports that were looked at
}

// FreePort returns a port that nobody listens on, that no other process gets from FreePort, and that it has not returned
// before in this process, unless that has had very many.
func FreePort() (int, error) {
	mine.mu.Lock()
	defer mine.mu.Unlock()
	for range blocks * blockSize {
		if mine.used == len(mine.bases)*(blockSize-1) && !takeBlock() {
			mine.used = 0 // all are taken: from the start again
		}
		if len(mine.bases) == 0 {
			break
		}
		port := mine.bases[mine.used/(blockSize-1)] + 1 + mine.used%(blockSize-1)
		mine.used++
		if portFree(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: all between %d and %d are taken", firstPort, firstPort+blocks*blockSize)
}

// takeBlock takes one more block, and reports false where none is left.
func takeBlock() bool {
	for i, start := 0, rand.IntN(blocks); i < blocks; i++ {
		base := firstPort + (start+i)%blocks*blockSize
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(base))); err == nil {
			mine.kept, mine.bases = append(mine.kept, l), append(mine.bases, base)
			return true
		}
	}
	return false
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
