package redisstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
)

// wire is the connection that reads new entries. go-redis makes it, with its address, TLS, password and name, and holds it
// without using it any more. From then on bytes are read here: so a reply is copied once, and Redis is asked for the next
// entries before the last ones are decoded, which lets both work at the same time. After an error it is not used again.
type wire struct {
	client *redis.Client
	conn   net.Conn
	in     *bufio.Reader
	answer []byte    // the last reply
	asked  time.Time // when the read was sent that has no reply yet; zero where there is none
	ended  <-chan struct{}
	heard  func()
}

// dial connects, within answerTime.
func (s *session) dial(ctx context.Context) (*wire, error) {
	ended := ctx.Done()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	w := &wire{ended: ended, heard: s.heard}
	opts := *s.reads
	dial := opts.Dialer
	if dial == nil {
		dial = redis.NewDialer(&opts)
	}
	opts.Dialer = func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
		w.conn, err = dial(ctx, network, addr)
		return w.conn, err
	}
	w.client = redis.NewClient(&opts)
	if err := w.client.Conn().Ping(ctx).Err(); err != nil {
		_ = w.client.Close()
		return nil, err
	}
	w.in = bufio.NewReaderSize(w, 64<<10)
	return w, nil
}

// close ends the connection.
func (w *wire) close() { _ = w.client.Close() }

// ask sends a command that waits for entries for up to block.
func (w *wire) ask(args ...string) error {
	w.asked = time.Now()
	if err := w.conn.SetDeadline(w.asked.Add(block + answerTime)); err != nil {
		return err
	}
	_, err := io.WriteString(w.conn, pack(args...)) // a command is an array too
	return err
}

// Read is for in. A reply may take long on a slow link, as long as it goes on; at the end of the session no longer.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.conn.Read(p)
	if err != nil {
		return n, err
	}
	select {
	case <-w.ended:
		return n, nil
	default:
	}
	w.heard()
	return n, w.conn.SetReadDeadline(time.Now().Add(answerTime))
}

// heard notes that Redis answers, though not to the end yet.
func (s *session) heard() { s.unanswered.Store(uptime(time.Now())) }

// reply waits for the reply to what was asked. It is valid until the next one.
func (w *wire) reply() (raw string, asked time.Time, err error) {
	if cap(w.answer) > 1<<20 { // after unusually large entries
		w.answer = nil
	}
	w.answer = w.answer[:0]
	if err := w.item(0); err != nil {
		return "", w.asked, err
	}
	asked, w.asked = w.asked, time.Time{}
	return unsafe.String(unsafe.SliceData(w.answer), len(w.answer)), asked, nil // no copy: nobody writes to it before the next reply
}

const (
	// deepest is how many arrays an XREADGROUP's reply has in each other, and largest the most bytes that Redis keeps in a
	// string (https://redis.io/docs/latest/develop/data-types/strings/#limits): beyond them it is no such reply.
	deepest = 5
	largest = 512 << 20
)

// item reads one item of the reply, with all that is in it.
func (w *wire) item(depth int) error {
	line, err := w.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if len(line) < 4 || depth > deepest {
		return errReply
	}
	w.answer = append(w.answer, line...)
	switch line[0] {
	case '$':
		n, err := strconv.Atoi(string(line[1 : len(line)-2]))
		if err != nil || n > largest {
			return fmt.Errorf("%w: %.40q", errReply, line)
		}
		if n < 0 {
			return nil
		}
		had := len(w.answer)
		w.answer = slices.Grow(w.answer, n+2)[:had+n+2]
		_, err = io.ReadFull(w.in, w.answer[had:])
		return err
	case '*':
		n, err := strconv.Atoi(string(line[1 : len(line)-2]))
		if err != nil {
			return fmt.Errorf("%w: %.40q", errReply, line)
		}
		for range n {
			if err := w.item(depth + 1); err != nil {
				return err
			}
		}
		return nil
	case '-':
		return serverError(line[1 : len(line)-2])
	}
	return nil
}
