package main

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// trouble is what a forwarder makes.
type trouble int

const (
	pass       trouble = iota
	refuse             // connections are closed at once
	freeze             // nothing is passed on any more
	loseReply          // what has the mark is passed on, its reply is lost and the connection closed
	holdReply          // as loseReply, but the connection stays open and silent
	loseSaying         // what has the mark is not passed on, and the connection closed
)

// forwarder is a TCP proxy in front of Postgres that makes trouble.
type forwarder struct {
	ln     net.Listener
	target string

	mu      sync.Mutex
	trouble trouble
	mark    string // the trouble begins with a message that has it
	times   int    // how often; below 0: always
	met     int    // how often it happened
	deaf    bool   // requests to cancel a statement are lost
	conns   map[net.Conn]bool
}

// forward starts a forwarder to the database of the URL and returns it with the URL that leads through it.
func forward(t *testing.T, databaseURL string) (*forwarder, string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{ln: ln, target: u.Host, conns: make(map[net.Conn]bool)}
	u.Host = ln.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() { f.accept(&wg) })
	t.Cleanup(func() {
		ln.Close()
		f.closeAll()
		wg.Wait()
	})
	return f, u.String()
}

// set begins a trouble that is not about one message, or ends one.
func (f *forwarder) set(what trouble) {
	f.mu.Lock()
	f.trouble, f.mark, f.times, f.met = what, "", 0, 0
	f.mu.Unlock()
	if what != freeze {
		f.closeAll()
	}
}

// on makes trouble for messages that have the mark, so many times.
func (f *forwarder) on(mark string, what trouble, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trouble, f.mark, f.times, f.met = what, mark, times, 0
}

// ignoreCancels loses all requests to cancel a statement from now on.
func (f *forwarder) ignoreCancels() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf = true
}

// happened tells how often the trouble of on came.
func (f *forwarder) happened() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.met
}

func (f *forwarder) closeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.Close()
	}
	clear(f.conns)
}

func (f *forwarder) accept(wg *sync.WaitGroup) {
	for {
		client, err := f.ln.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		refused := f.trouble == refuse
		f.mu.Unlock()
		if refused {
			client.Close()
			continue
		}
		server, err := net.Dial("tcp", f.target)
		if err != nil {
			client.Close()
			continue
		}
		f.mu.Lock()
		f.conns[client], f.conns[server] = true, true
		f.mu.Unlock()
		l := &link{f: f, client: client, server: server}
		wg.Go(l.say)
		wg.Go(l.reply)
	}
}

// link is one connection through the forwarder.
type link struct {
	f              *forwarder
	client, server net.Conn

	mu     sync.Mutex
	losing trouble // what happens to the next reply
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
}

func (l *link) say() {
	defer l.server.Close()
	buf := make([]byte, 128<<10)
	for {
		n, err := l.client.Read(buf)
		if err != nil {
			return
		}
		if l.f.lost(buf[:n]) {
			l.close()
			return
		}
		switch what := l.f.meet(buf[:n]); what {
		case freeze:
			continue
		case loseSaying:
			l.close()
			return
		case loseReply, holdReply:
			l.mu.Lock()
			l.losing = what
			l.mu.Unlock()
		}
		if _, err := l.server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// lost reports whether the message is a CancelRequest that gets lost
// (https://www.postgresql.org/docs/15/protocol-message-formats.html).
func (f *forwarder) lost(message []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deaf && len(message) == 16 && bytes.HasPrefix(message, []byte{0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e})
}

// meet tells what trouble the message has.
func (f *forwarder) meet(message []byte) trouble {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mark == "" {
		return f.trouble
	}
	if f.times == 0 || !bytes.Contains(message, []byte(f.mark)) {
		return pass
	}
	f.times--
	f.met++
	return f.trouble
}

func (l *link) reply() {
	defer l.client.Close()
	buf := make([]byte, 128<<10)
	for {
		n, err := l.server.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		losing := l.losing
		l.mu.Unlock()
		switch {
		case losing == loseReply && ready(buf[:n]):
			l.close()
			return
		case losing != pass || l.f.frozen():
			continue
		}
		if _, err := l.client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (f *forwarder) frozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mark == "" && f.trouble == freeze
}

// ready reports whether Postgres has done what it was told: its last message is ReadyForQuery.
func ready(reply []byte) bool {
	return len(reply) >= 6 && bytes.Equal(reply[len(reply)-6:len(reply)-1], []byte{'Z', 0, 0, 0, 5})
}
