package redisstream

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// reply reads the raw answer to an XREADGROUP of one stream
// (RESP2, https://redis.io/docs/latest/develop/reference/protocol-spec/). Reading the bytes here costs one copy
// a reply where go-redis makes a map an entry, and keeps the order of the fields and repeated names.
type reply struct{ rest string }

var errReply = errors.New("redis answered in a form that is not known")

// serverError is an error reply, for instance "NOGROUP No such key …".
type serverError string

func (e serverError) Error() string { return string(e) }

// parseEntries returns the entries of the answer, none where it is nil. They keep nothing of it.
func parseEntries(raw string) ([]*entry, error) {
	r := reply{raw}
	streams, err := r.array()
	if err != nil || streams < 1 {
		return nil, err
	}
	if n, err := r.array(); err != nil || n != 2 {
		return nil, errors.Join(err, errReply)
	}
	if _, err := r.text(); err != nil {
		return nil, err
	}
	n, err := r.array()
	if err != nil {
		return nil, err
	}
	entries := make([]*entry, 0, max(n, 0))
	for range n {
		e, err := r.entry()
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// entriesIn is how many entries the answer has.
func entriesIn(raw string) int {
	r := reply{raw}
	if streams, err := r.array(); err != nil || streams < 1 {
		return 0
	}
	_, _ = r.array()
	_, _ = r.text()
	n, _ := r.array()
	return max(n, 0)
}

// entry reads one entry, and copies all its texts at once.
func (r *reply) entry() (*entry, error) {
	if pair, err := r.array(); err != nil || pair != 2 {
		return nil, errors.Join(err, errReply)
	}
	whole := *r
	if _, err := r.text(); err != nil {
		return nil, err
	}
	count, err := r.array()
	if err != nil {
		return nil, err
	}
	for range count {
		if _, err := r.text(); err != nil {
			return nil, err
		}
	}
	own := reply{strings.Clone(whole.rest[:len(whole.rest)-len(r.rest)])}
	id, _ := own.text()
	return newEntry(id, own.rest), nil
}

// pack writes texts as an array in RESP, as a server does.
func pack(texts ...string) string {
	raw := []byte("*" + strconv.Itoa(len(texts)) + "\r\n")
	for _, t := range texts {
		raw = append(strconv.AppendInt(append(raw, '$'), int64(len(t)), 10), "\r\n"...)
		raw = append(append(raw, t...), "\r\n"...)
	}
	return string(raw)
}

// array reads the head of an array; a nil array has length -1.
func (r *reply) array() (int, error) {
	line, err := r.line()
	if err != nil {
		return 0, err
	}
	switch line[0] {
	case '*':
		n, err := number(line[1:])
		if n > len(r.rest) { // an item takes more than a byte
			return 0, errReply
		}
		return n, err
	case '_', '$': // nil in RESP3, and RESP2's nil string
		return -1, nil
	case '-':
		return 0, serverError(line[1:])
	}
	return 0, fmt.Errorf("%w: %q where an array was due", errReply, line)
}

// text reads a string. It is what most of a reply is made of.
func (r *reply) text() (string, error) {
	n, i := 0, 1
	for i < len(r.rest) && r.rest[i]-'0' <= 9 && n < len(r.rest) {
		n = 10*n + int(r.rest[i]-'0')
		i++
	}
	from := i + len("\r\n")
	if to := from + n; i > 1 && r.rest[0] == '$' && to+len("\r\n") <= len(r.rest) && r.rest[i] == '\r' {
		s := r.rest[from:to]
		r.rest = r.rest[to+len("\r\n"):]
		return s, nil
	}
	line, err := r.line()
	return "", errors.Join(err, fmt.Errorf("%w: %.40q where a string was due", errReply, line))
}

func (r *reply) line() (string, error) {
	line, rest, ok := strings.Cut(r.rest, "\r\n")
	if !ok || line == "" {
		return "", errReply
	}
	r.rest = rest
	return line, nil
}

func number(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errReply, err)
	}
	return n, nil
}
