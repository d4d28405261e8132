package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"
)

// go-mail writes our messages and speaks SMTP for us, through its smtp package. Its Client on top of that is not used, since it
// hides what we have to know: at which step a mail failed (before the final dot nothing was handed over, behind it nobody knows),
// and since it has one deadline for a whole mail, takes no context while sending, and offers SMTPUTF8 for every mail or for none.

// stepTimeout bounds one step of a conversation except the last: a command and its reply.
const stepTimeout = 15 * time.Second

// finalTimeout bounds the wait for the reply to the final dot (RFC 5321, section 4.5.3.2.6), where the handler's time-out
// does not end it before.
const finalTimeout = 10 * time.Minute

// startTLS says when a connection is to be encrypted with STARTTLS.
type startTLS string

const (
	startTLSRequired      startTLS = "required"
	startTLSOpportunistic startTLS = "opportunistic"
	startTLSOff           startTLS = "off"
)

// server is where mails are handed in, and how.
type server struct {
	addr           string // host:port
	host           string
	implicitTLS    bool
	startTLS       startTLS
	user, password string

	roots *x509.CertPool // nil: the system's
}

// step names the point in a conversation at which it failed.
type step string

// The steps, in their order.
const (
	stepConnect step = "connect"
	stepGreet   step = "greeting"
	stepEHLO    step = "EHLO"
	stepTLS     step = "STARTTLS"
	stepAuth    step = "AUTH"
	stepMail    step = "MAIL"
	stepRcpt    step = "RCPT"
	stepData    step = "DATA"
	stepContent step = "content"
	stepFinal   step = "final dot"
)

// stepError says at which step a conversation failed. Err wraps a *textproto.Error where the server refused it; anything else
// is trouble with the connection.
type stepError struct {
	step step
	err  error
}

func (e *stepError) Error() string {
	if r := e.reply(); r != nil {
		return fmt.Sprintf("smtp %s: %03d %s", e.step, r.Code, strings.Join(strings.Fields(r.Msg), " "))
	}
	return fmt.Sprintf("smtp %s: %v", e.step, e.err)
}

func (e *stepError) Unwrap() error { return e.err }

// reply returns the server's refusal, or nil.
func (e *stepError) reply() *textproto.Error {
	r, _ := errors.AsType[*textproto.Error](e.err)
	return r
}

// errNoSMTPUTF8 says that an address has a local part which this server cannot take.
var errNoSMTPUTF8 = errors.New("the part of the address before the @ is not ASCII, and the mail server does not offer SMTPUTF8")

// conn is one connection, ready for a mail. It is used by one goroutine at a time.
type conn struct {
	raw    net.Conn // under TLS, for deadlines
	client *smtp.Client
	expire *time.Timer // ends it while nobody uses it
}

// dial connects, encrypts and logs in. Every error is a *stepError.
func (s server) dial(ctx context.Context) (*conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, stepLimit(ctx, stepTimeout))
	defer cancel()
	raw, err := new(net.Dialer).DialContext(dialCtx, "tcp", s.addr)
	if err != nil {
		return nil, &stepError{stepConnect, err}
	}
	c := &conn{raw: raw}
	if err := s.greet(ctx, c); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

func (s server) greet(ctx context.Context, c *conn) error {
	tlsConfig := &tls.Config{
		ServerName:         s.host,
		RootCAs:            s.roots,
		InsecureSkipVerify: s.startTLS == startTLSOpportunistic, // see readSMTP
		MinVersion:         tls.VersionTLS12,
	}
	conn := c.raw
	if s.implicitTLS {
		conn = tls.Client(c.raw, tlsConfig)
	}
	err := c.run(ctx, stepGreet, func() (err error) {
		c.client, err = smtp.NewClient(conn, s.host)
		return err
	})
	if err != nil {
		return err
	}
	if err := c.run(ctx, stepEHLO, func() error { return c.client.Hello(localName()) }); err != nil {
		return err
	}
	if err := c.run(ctx, stepTLS, func() error { return s.encrypt(c, tlsConfig) }); err != nil {
		return err
	}
	return c.run(ctx, stepAuth, func() error { return s.logIn(c) })
}

func (s server) encrypt(c *conn, tlsConfig *tls.Config) error {
	offered, _ := c.client.Extension("STARTTLS")
	switch {
	case s.implicitTLS || s.startTLS == startTLSOff || s.startTLS == startTLSOpportunistic && !offered:
		return nil
	case !offered:
		return errors.New("the server does not offer it")
	default:
		return c.client.StartTLS(tlsConfig)
	}
}

func (s server) logIn(c *conn) error {
	if s.user == "" {
		return nil
	}
	_, offered := c.client.Extension("AUTH")
	methods := strings.Fields(offered)
	clear := s.startTLS == startTLSOff && !s.implicitTLS
	switch {
	case slices.Contains(methods, "SCRAM-SHA-256"):
		return c.client.Auth(smtp.ScramSHA256Auth(s.user, s.password))
	case slices.Contains(methods, "PLAIN"):
		return c.client.Auth(smtp.PlainAuth("", s.user, s.password, s.host, clear))
	case slices.Contains(methods, "LOGIN"):
		return c.client.Auth(smtp.LoginAuth(s.user, s.password, s.host, clear))
	case slices.Contains(methods, "CRAM-MD5"):
		return c.client.Auth(smtp.CRAMMD5Auth(s.user, s.password))
	default:
		return fmt.Errorf("the server offers none of SCRAM-SHA-256, PLAIN, LOGIN and CRAM-MD5 but %q", offered)
	}
}

// deliver hands one mail over. Every error is a *stepError, or errNoSMTPUTF8.
func (c *conn) deliver(ctx context.Context, m *message) error {
	utf8, _ := c.client.Extension("SMTPUTF8")
	if !m.to.ascii() && !utf8 {
		return errNoSMTPUTF8
	}
	// Asked for where it is needed only: the next server on the way may not know it.
	c.client.SkipSMTPUTF8(m.to.ascii())
	if err := c.run(ctx, stepMail, func() error { return c.client.Mail(m.from.path()) }); err != nil {
		return err
	}
	if err := c.run(ctx, stepRcpt, func() error { return c.client.Rcpt(m.to.path()) }); err != nil {
		return err
	}
	var content interface {
		Write([]byte) (int, error)
		Close() error
	}
	err := c.run(ctx, stepData, func() (err error) {
		content, err = c.client.Data()
		return err
	})
	if err != nil {
		return err
	}
	err = c.run(ctx, stepContent, func() error {
		_, err := content.Write(m.content)
		return err
	})
	if err != nil {
		return err
	}
	err = c.run(ctx, stepFinal, content.Close)
	if e, ok := errors.AsType[*stepError](err); ok && e.reply() != nil && e.reply().Code/100 == 2 {
		return nil // not the usual 250, but a yes
	}
	return err
}

// reset ends a transaction that the server refused, so that the connection can take the next mail.
func (c *conn) reset(ctx context.Context) error {
	return c.run(ctx, "RSET", c.client.Reset)
}

// quit takes leave and closes the connection. What the server says to that changes nothing.
func (c *conn) quit() {
	_ = c.raw.SetDeadline(time.Now().Add(time.Second))
	_ = c.client.Quit()
	_ = c.raw.Close()
}

// run does one step within its deadline and that of ctx. A cancelled ctx ends it at once. The error is a *stepError.
func (c *conn) run(ctx context.Context, name step, f func() error) error {
	limit := stepLimit(ctx, stepTimeout)
	if name == stepFinal {
		limit = finalTimeout
	}
	deadline := time.Now().Add(limit)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := c.raw.SetDeadline(deadline); err != nil {
		return &stepError{name, err}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	// Not before: a cancel before SetDeadline was undone by it.
	if err := ctx.Err(); err != nil {
		return &stepError{name, err}
	}
	if err := f(); err != nil {
		return &stepError{name, err}
	}
	return nil
}

// stepLimit is how long a step may take: at most half of what ctx still has, so that a server which does not answer is seen
// as such before the handler's own time is up.
func stepLimit(ctx context.Context, limit time.Duration) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(d)/2)
	}
	return limit
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

// localName is what we call ourselves in EHLO.
func localName() string {
	if name, err := os.Hostname(); err == nil && hostName.MatchString(name) {
		return name
	}
	return "localhost"
}
