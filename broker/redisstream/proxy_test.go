package redisstream

import (
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// prompt lets every answer through at once.
func prompt([]byte) time.Duration { return 0 }

// proxy forwards connections to the server at addr, asked for each connection, and lets answers wait for as long as late
// says of their request. It returns the options of a client behind it.
func (w *world) proxy(addr func() string, late func(request []byte) time.Duration) *redis.Options {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go forward(c, addr(), late)
		}
	}()
	opts := w.server.Options()
	opts.Addr = l.Addr().String()
	return opts
}

func forward(c net.Conn, addr string, late func(request []byte) time.Duration) {
	defer func() { _ = c.Close() }()
	up, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	var wait atomic.Int64
	go func() {
		defer func() { _ = up.Close() }()
		copyChunks(up, c, func(request []byte) { wait.Store(int64(late(request))) })
	}()
	copyChunks(c, up, func([]byte) { time.Sleep(time.Duration(wait.Load())) })
}

func copyChunks(to io.Writer, from io.Reader, before func(chunk []byte)) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		before(buf[:n])
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
