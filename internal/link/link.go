// Package link is a TCP link between a client and a server that tests and chaos spoil: cut, stalled one way or both,
// slow, or with the answers to some requests lost.
package link

import (
	"net"
	"sync"
	"time"
)

// Fate is what becomes of a request.
type Fate struct {
	// Late holds the answer back for so long.
	Late time.Duration
	// DropAnswer closes the connection when the server answers, so that the client never learns what became of its request.
	DropAnswer bool
}

// Link forwards every connection that it accepts on 127.0.0.1 to its target.
type Link struct {
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	mended *sync.Cond
	target string
	judge  func(request []byte) Fate
	cut    bool
	stall  [2]bool // by direction
	delay  time.Duration
	conns  map[net.Conn]bool
	closed bool
}

// The directions of Stall.
const (
	Requests = 0
	Answers  = 1
)

// New starts a link to the address target.
func New(target string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{listener: listener, target: target, conns: map[net.Conn]bool{}}
	l.mended = sync.NewCond(&l.mu)
	l.done.Go(l.accept)
	return l, nil
}

// Addr is where clients connect to.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Close ends the link and all its connections.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closed = true
	l.dropConns()
	l.mended.Broadcast()
	l.mu.Unlock()
	err := l.listener.Close()
	l.done.Wait()
	return err
}

// Target sends new connections to another address. Those that exist stay.
func (l *Link) Target(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = addr
}

// Cut closes all connections and every new one at once, until Mend.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.dropConns()
}

// Stall lets nothing through in a direction, as a network that loses all packets of it, until Mend.
func (l *Link) Stall(direction int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stall[direction] = true
}

// Delay holds each piece of data back for d, in both directions.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Judge has f decide on each request, which it sees as the bytes of one read. nil lets all pass.
func (l *Link) Judge(f func(request []byte) Fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judge = f
}

// Mend ends Cut, Stall and Delay.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.stall, l.delay = false, [2]bool{}, 0
	l.mended.Broadcast()
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.done.Go(func() { l.forward(client) })
	}
}

// forward joins a client and the server until either ends.
func (l *Link) forward(client net.Conn) {
	l.mu.Lock()
	refuse, target := l.cut || l.closed, l.target
	l.mu.Unlock()
	if refuse {
		_ = client.Close()
		return
	}
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	if !l.keep(client, server) {
		return
	}
	var fate fateOf
	var both sync.WaitGroup
	both.Go(func() {
		defer l.drop(client, server)
		l.pipe(server, client, Requests, func(request []byte) bool {
			l.mu.Lock()
			judge := l.judge
			l.mu.Unlock()
			if judge != nil {
				fate.set(judge(request))
			}
			return true
		})
	})
	both.Go(func() {
		defer l.drop(client, server)
		l.pipe(client, server, Answers, func([]byte) bool {
			f := fate.get()
			time.Sleep(f.Late)
			return !f.DropAnswer
		})
	})
	both.Wait()
}

// pipe copies what comes from one side to the other, until either ends or pass says no.
func (l *Link) pipe(to, from net.Conn, direction int, pass func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !pass(buf[:n]) || !l.hold(direction) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// hold waits for the link's delay, and for the end of a stall. It reports false where the link was closed.
func (l *Link) hold(direction int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.delay; d > 0 {
		l.mu.Unlock()
		time.Sleep(d)
		l.mu.Lock()
	}
	for l.stall[direction] && !l.closed {
		l.mended.Wait()
	}
	return !l.closed
}

func (l *Link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		l.conns[c] = true
	}
	if l.cut || l.closed {
		l.dropConns()
		return false
	}
	return true
}

func (l *Link) drop(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(l.conns, c)
	}
}

// dropConns closes every connection. The caller holds the lock.
func (l *Link) dropConns() {
	for c := range l.conns {
		_ = c.Close()
	}
	clear(l.conns)
}

type fateOf struct {
	mu   sync.Mutex
	fate Fate
}

func (f *fateOf) set(fate Fate) { f.mu.Lock(); f.fate = fate; f.mu.Unlock() }
func (f *fateOf) get() Fate     { f.mu.Lock(); defer f.mu.Unlock(); return f.fate }
