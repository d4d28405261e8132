package up

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// console writes whole lines of several writers to one, each with the name of its source in front.
type console struct {
	mu     sync.Mutex
	to     io.Writer
	colour bool
	held   *bytes.Buffer // what waits while the table is not printed yet; nil: nothing waits
}

// heldLimit bounds what waits for the table.
const heldLimit = 1 << 20

var colours = map[string]string{"orders": "36", "mailer": "35", "bonus": "32", "analytics": "33", "fanout": "1"}

func newConsole(to io.Writer, colour bool) *console { return &console{to: to, colour: colour} }

// hold keeps the sources' lines back until release.
func (c *console) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = &bytes.Buffer{}
}

func (c *console) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held != nil {
		c.to.Write(c.held.Bytes())
		c.held = nil
	}
}

// say prints the program's own line at once. What cannot be printed is lost: the services matter more than their log.
func (c *console) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.to, format+"\n", args...)
}

// note prints a line of the program's own among those of the services.
func (c *console) note(format string, args ...any) {
	c.line("fanout", fmt.Appendf(nil, format, args...))
}

func (c *console) line(name string, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	prefix := fmt.Sprintf("%-9s |", name)
	if c.colour {
		prefix = "\x1b[" + colours[name] + "m" + prefix + "\x1b[0m"
	}
	to := c.to
	if c.held != nil {
		if c.held.Len() > heldLimit {
			return
		}
		to = c.held
	}
	fmt.Fprintf(to, "%s %s\n", prefix, text)
}

// source returns a writer for one source.
func (c *console) source(name string) *source { return &source{console: c, name: name} }

type source struct {
	console *console
	name    string

	mu   sync.Mutex
	rest []byte
}

// lineLimit is where a line without an end is cut.
const lineLimit = 64 << 10

func (s *source) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, b...)
	for {
		i := bytes.IndexByte(s.rest, '\n')
		if i < 0 {
			break
		}
		s.console.line(s.name, bytes.TrimSuffix(s.rest[:i], []byte("\r")))
		s.rest = s.rest[i+1:]
	}
	if len(s.rest) > lineLimit {
		s.console.line(s.name, s.rest)
		s.rest = nil
	}
	return len(b), nil
}

// flush prints a last line that has no end.
func (s *source) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) > 0 {
		s.console.line(s.name, s.rest)
		s.rest = nil
	}
}
