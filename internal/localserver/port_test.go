package localserver

import (
	"fmt"
	"net"
	"testing"
)

// TestPortsAreThisProcess: whoever else wants the block of a port finds it taken, also while nobody listens on the port itself, and
// no port comes twice.
func TestPortsAreThisProcess(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range blockSize + 1 { // more than a block has
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Errorf("port %d came twice", port)
		}
		seen[port] = true
		base := port - (port-firstPort)%blockSize
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", base)); err == nil {
			l.Close()
			t.Fatalf("another process could take the block from %d on, and so port %d", base, port)
		}
	}
}
