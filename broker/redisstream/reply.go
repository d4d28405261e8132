package redisstream

import (
	"bytes"
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

// answer collects the bytes of a reply. An error reply is an error to go-redis too, which closes the connection then: a server that
// was demoted answers READONLY for ever on the connections that it has.
type answer struct{ bytes.Buffer }

func (a *answer) Write(p []byte) (int, error) {
	if a.Len() == 0 && len(p) > 0 && p[0] == '-' {
		return 0, serverError(p[1:])
	}
	return a.Buffer.Write(p)
}

// parseEntries returns the entries of the answer, none where it is nil.
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
		if pair, err := r.array(); err != nil || pair != 2 {
			return nil, errors.Join(err, errReply)
		}
		id, err := r.text()
		if err != nil {
			return nil, err
		}
		count, err := r.array()
		if err != nil {
			return nil, err
		}
		fields := make([]string, max(count, 0))
		for i := range fields {
			if fields[i], err = r.text(); err != nil {
				return nil, err
			}
		}
		entries = append(entries, newEntry(id, fields))
	}
	return entries, nil
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

func (r *reply) text() (string, error) {
	line, err := r.line()
	if err != nil {
		return "", err
	}
	if line[0] != '$' {
		return "", fmt.Errorf("%w: %q where a string was due", errReply, line)
	}
	n, err := number(line[1:])
	if err != nil || n < 0 || n > len(r.rest)-2 {
		return "", errors.Join(err, errReply)
	}
	s := r.rest[:n]
	r.rest = r.rest[n+2:]
	return s, nil
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
