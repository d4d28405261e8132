// Package smtpsink is an SMTP server that delivers nothing: it keeps each mail as a file, for `fanout up`, and lets a test
// decide how each mail is answered.
package smtpsink

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/emersion/go-smtp"
)

// Config says what a Sink does.
type Config struct {
	// Addr is where it listens. Default: a free port of 127.0.0.1.
	Addr string
	// Dir is where each mail is kept as a file that ends in .eml, made where it is missing. A mail is accepted once its
	// file is there. Default: none are kept.
	Dir string
	// OnData is called for each mail, numbered from 1, before it is kept or answered; several calls may run at once. It may take its time.
	// A Reply is the answer, ErrCut ends the connection without one; any other error is answered with 554.
	OnData func(n int, from string, to []string, data []byte) error
	// Kept is called with the path of each file.
	Kept func(to []string, file string)
}

// ErrCut makes the Sink close the connection where its answer is awaited: the sender cannot know what became of the mail.
var ErrCut = errors.New("connection cut")

// Reply returns an error that is answered with this code, such as 421, 451 or 550.
func Reply(code int, text string) error {
	return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 0, 0}, Message: text}
}

// Sink is a running server.
type Sink struct {
	cfg    Config
	addr   string
	server *smtp.Server
	done   chan struct{}
	mails  atomic.Int64
}

// Start listens and serves until Close.
func Start(cfg Config) (*Sink, error) {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.Dir != "" {
		if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("start smtp sink: %w", err)
		}
	}
	l, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("start smtp sink: %w", err)
	}
	s := &Sink{cfg: cfg, addr: l.Addr().String(), done: make(chan struct{})}
	s.server = smtp.NewServer(smtp.BackendFunc(s.connect))
	s.server.Domain = "localhost"
	s.server.EnableSMTPUTF8 = true
	s.server.MaxMessageBytes = 10 << 20
	s.server.ReadTimeout = 5 * time.Minute
	s.server.WriteTimeout = time.Minute
	go func() {
		defer close(s.done)
		s.server.Serve(l) // ends with Close; a listener has no other end
	}()
	return s, nil
}

// Addr returns host and port.
func (s *Sink) Addr() string { return s.addr }

// URL returns an smtp:// URL.
func (s *Sink) URL() string { return "smtp://" + s.addr }

// Close ends it and all connections.
func (s *Sink) Close() error {
	err := s.server.Close()
	<-s.done
	return err
}

func (s *Sink) connect(c *smtp.Conn) (smtp.Session, error) {
	return &session{sink: s, conn: c}, nil
}

// session is one connection.
type session struct {
	sink *Sink
	conn *smtp.Conn
	from string
	to   []string
}

func (s *session) Reset() { s.from, s.to = "", nil }

func (s *session) Logout() error { return nil }

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = append(s.to, to)
	return nil
}

func (s *session) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	err = s.sink.take(s.from, s.to, data)
	if errors.Is(err, ErrCut) {
		s.conn.Conn().Close()
	}
	return err
}

func (s *Sink) take(from string, to []string, data []byte) error {
	n := int(s.mails.Add(1))
	if s.cfg.OnData != nil {
		if err := s.cfg.OnData(n, from, to, data); err != nil {
			return err
		}
	}
	if s.cfg.Dir == "" {
		return nil
	}
	file, err := s.keep(n, to, data)
	if err != nil {
		return Reply(452, "the mail cannot be kept: "+err.Error())
	}
	if s.cfg.Kept != nil {
		s.cfg.Kept(to, file)
	}
	return nil
}

// keep writes the mail under a name that sorts by time. It is renamed into place, so that a reader sees whole mails only.
func (s *Sink) keep(n int, to []string, data []byte) (string, error) {
	name := fmt.Sprintf("%s-%04d-%s.eml", time.Now().UTC().Format("20060102T150405.000"), n, fileName(to))
	file := filepath.Join(s.cfg.Dir, name)
	part := file + ".part"
	if err := os.WriteFile(part, data, 0o600); err != nil {
		return "", err
	}
	return file, os.Rename(part, file)
}

// fileName makes the first address fit for a file's name.
func fileName(to []string) string {
	if len(to) == 0 {
		return "nobody"
	}
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("@.+-_", r):
			return r
		}
		return '_'
	}, to[0])
	return clean[:min(len(clean), 100)]
}
