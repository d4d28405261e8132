package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// smtpStub is a mail server that can be told to misbehave.
type smtpStub struct {
	extensions []string
	// on is asked before each step: its verb is GREETING, EHLO, STARTTLS, AUTH, MAIL, RCPT, DATA, "." (the mail is there),
	// RSET, NOOP or QUIT. It returns the reply, "" for the usual one, cut or hang.
	on func(c stubConn, verb, line string) string
	// login is what AUTH PLAIN takes, "user:password".
	login string
	cert  *tls.Certificate
	tls   bool // from the first byte

	ln   net.Listener
	done chan struct{}

	mu       sync.Mutex
	mails    []stubMail
	accepted int
	conns    map[net.Conn]bool // value: waiting for a command
	open     int               // most at once
}

const (
	cut  = "cut"  // close the connection without a word
	hang = "hang" // never reply
)

// stubConn tells which connection a step is on, and how many mails it has had before. Both count from 1.
type stubConn struct{ conn, mail int }

type stubMail struct {
	stubConn
	from, to string // the arguments of MAIL and RCPT
	content  string
}

// startStub starts a server on a free port; set what differs from a good one before, in configure.
func startStub(t *testing.T, configure func(*smtpStub)) *smtpStub {
	t.Helper()
	s := &smtpStub{done: make(chan struct{}), conns: make(map[net.Conn]bool), extensions: []string{"8BITMIME"}}
	if configure != nil {
		configure(s)
	}
	var err error
	if s.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go s.accept()
	t.Cleanup(s.stop)
	return s
}

func (s *smtpStub) server() server {
	return server{addr: s.ln.Addr().String(), host: "127.0.0.1", startTLS: startTLSOff}
}

func (s *smtpStub) url() string { return "smtp://" + s.ln.Addr().String() }

func (s *smtpStub) stop() {
	s.ln.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	for c := range s.conns {
		c.Close()
	}
}

func (s *smtpStub) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		if s.tls {
			c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*s.cert}})
		}
		s.mu.Lock()
		s.accepted++
		n := s.accepted
		s.conns[c] = false
		s.open = max(s.open, len(s.conns))
		s.mu.Unlock()
		go s.serve(c, n)
	}
}

// received returns the mails that were accepted whole, also those whose acceptance was never said.
func (s *smtpStub) received() []stubMail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]stubMail(nil), s.mails...)
}

func (s *smtpStub) connections() (accepted, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted, s.open
}

// closeIdle says goodbye on every connection that waits for a command, as servers do after a while, and returns how many
// there were.
func (s *smtpStub) closeIdle() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c, idle := range s.conns {
		if idle {
			fmt.Fprint(c, "421 4.4.2 timeout exceeded\r\n")
			c.Close()
			n++
		}
	}
	return n
}

func (s *smtpStub) serve(c net.Conn, n int) {
	id := stubConn{conn: n, mail: 1}
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		c.Close()
	}()
	r := bufio.NewReader(c)
	// say writes a reply and reports whether to go on. A refusal is written, too, but is not ok.
	say := func(verb, line, usual string) (ok, goOn bool) {
		reply := ""
		if s.on != nil {
			reply = s.on(id, verb, line)
		}
		switch reply {
		case "":
			reply = usual
		case cut:
			return false, false
		case hang:
			<-s.done
			return false, false
		}
		_, err := fmt.Fprint(c, reply+"\r\n")
		return reply[0] == '2' || reply[0] == '3', err == nil && !strings.HasPrefix(reply, "421")
	}
	if _, goOn := say("GREETING", "", "220 stub ESMTP"); !goOn {
		return
	}
	var from, to string
	encrypted := s.tls
	for {
		s.setIdle(c, true)
		line, err := r.ReadString('\n')
		s.setIdle(c, false)
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		verb, arg, _ := strings.Cut(line, " ")
		verb = strings.ToUpper(verb)
		usual := "250 ok"
		switch verb {
		case "EHLO":
			usual = s.ehlo(encrypted)
		case "STARTTLS":
			usual = "220 go on"
		case "AUTH":
			usual = "235 welcome"
			if _, secret, _ := strings.Cut(arg, " "); secret != base64.StdEncoding.EncodeToString([]byte("\x00"+strings.Replace(s.login, ":", "\x00", 1))) {
				usual = "535 5.7.8 wrong password"
			}
		case "MAIL":
			if from != "" {
				usual = "503 5.5.1 one mail at a time"
			}
			from = strings.TrimPrefix(arg, "FROM:")
		case "RSET":
			from = ""
		case "RCPT":
			to = strings.TrimPrefix(arg, "TO:")
		case "DATA":
			usual = "354 go on"
		case "QUIT":
			usual = "221 bye"
		}
		ok, goOn := say(verb, line, usual)
		if !goOn || verb == "QUIT" {
			return
		}
		if !ok {
			if verb == "MAIL" {
				from = ""
			}
			continue
		}
		switch verb {
		case "STARTTLS":
			t := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*s.cert}})
			s.mu.Lock()
			delete(s.conns, c)
			s.conns[t] = false
			s.mu.Unlock()
			c, encrypted = t, true
			r = bufio.NewReader(c)
		case "DATA":
			content, err := readContent(r)
			if err != nil {
				return
			}
			s.add(stubMail{id, from, to, content}, false)
			ok, goOn := say(".", "", "250 taken")
			if !ok && goOn { // refused
				s.add(stubMail{}, true)
			}
			if !goOn {
				return
			}
			id.mail++
			from = ""
		}
	}
}

// add keeps a mail, or takes the last one back.
func (s *smtpStub) add(m stubMail, back bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if back {
		s.mails = s.mails[:len(s.mails)-1]
		return
	}
	s.mails = append(s.mails, m)
}

func (s *smtpStub) setIdle(c net.Conn, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = idle
}

func (s *smtpStub) ehlo(encrypted bool) string {
	ext := append([]string{"stub"}, s.extensions...)
	if s.cert != nil && !encrypted {
		ext = append(ext, "STARTTLS")
	}
	if s.login != "" {
		ext = append(ext, "AUTH PLAIN")
	}
	for i := range ext {
		sep := "-"
		if i == len(ext)-1 {
			sep = " "
		}
		ext[i] = "250" + sep + ext[i]
	}
	return strings.Join(ext, "\r\n")
}

// readContent reads up to the final dot, and undoes the dots put in front of others.
func readContent(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line == ".\r\n" {
			return b.String(), nil
		}
		b.WriteString(strings.TrimPrefix(line, "."))
	}
}

// selfSigned makes a certificate for 127.0.0.1 and a pool that trusts it.
func selfSigned(t *testing.T) (*tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
