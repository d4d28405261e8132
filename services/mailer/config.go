package main

import (
	"cmp"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/broker/redisstream"
	"example.com/orderfanout/internal/env"
	"example.com/orderfanout/internal/ops"
)

// config is the mailer's environment.
type config struct {
	ops.Config
	// Redis is REDIS_URL, redis:// or rediss://. Required.
	Redis *redis.Options
	// SMTP is SMTP_URL. Required; see readSMTP.
	SMTP server
	// From is MAIL_FROM, who the mails are from: an address with an ASCII local part, with or without a name. Its domain
	// ends every Message-ID. Default "orderfanout <orders@orderfanout.example.com>".
	From mailbox
	// Retention has PROCESSED_RETENTION, how long a sent mail is remembered.
	Retention ops.Retention
	// Consumer is how the stream is read. Its Concurrency, 16 by default, is also how many connections to the SMTP server
	// there are at most.
	Consumer redisstream.Config
}

func readConfig(getenv func(string) string) (config, error) {
	r := env.NewReader(getenv)
	cfg := config{
		Config:   ops.ReadConfig(r, ":8081"),
		Redis:    ops.ReadRedis(r),
		SMTP:     readSMTP(r),
		Consumer: ops.ReadConsumer(r, "mailer"),
	}
	// The sender and the marker need these two, so the engine's defaults are written out here.
	cfg.Consumer.Concurrency = cmp.Or(cfg.Consumer.Concurrency, 16)
	cfg.Consumer.HandlerTimeout = cmp.Or(cfg.Consumer.HandlerTimeout, 30*time.Second)
	cfg.Retention = ops.ReadRetention(r, cfg.Consumer.LongestBackoff())
	var err error
	if cfg.From, err = parseMailbox(r.String("MAIL_FROM", "orderfanout <orders@orderfanout.example.com>")); err != nil {
		r.Fail("MAIL_FROM", "%v", err)
	} else if !cfg.From.ascii() {
		r.Fail("MAIL_FROM", "the part before the @ is not ASCII, which few servers take")
	}
	return cfg, r.Err()
}

// readSMTP reads SMTP_URL:
//
//	smtp://[user:password@]host[:25][?starttls=required|opportunistic|off]
//	smtps://[user:password@]host[:465]
//
// smtps is TLS from the first byte. starttls=required, the default where there is a password, sends nothing before the
// connection is encrypted and the server's certificate verified. opportunistic, the default without a password, encrypts
// where the server offers it and verifies nothing: whoever can forge a certificate could also hide the offer. It is refused
// together with a password. off never encrypts, and sends a password in the clear.
func readSMTP(r *env.Reader) server {
	const name = "SMTP_URL"
	v := r.URL(name, "", "smtp", "smtps")
	u, err := url.Parse(v)
	if err != nil || u.Hostname() == "" {
		if err == nil && u.Host != "" {
			r.Fail(name, "has no host")
		}
		return server{} // r.URL has said the rest
	}
	s := server{host: u.Hostname(), implicitTLS: u.Scheme == "smtps"}
	port := "25"
	if s.implicitTLS {
		port = "465"
	}
	port = cmp.Or(u.Port(), port)
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		r.Fail(name, "port %s is not between 1 and 65535", port)
	}
	s.addr = net.JoinHostPort(s.host, port)
	if u.User != nil {
		s.user = u.User.Username()
		s.password, _ = u.User.Password()
		if s.user == "" || s.password == "" {
			r.Fail(name, "has a user without a password or a password without a user")
		}
	}
	if u.Path != "" && u.Path != "/" || u.Fragment != "" {
		r.Fail(name, "has something after the host and port other than ?starttls=")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		r.Fail(name, "has a query that cannot be read")
	}
	for key, values := range query {
		if key != "starttls" || len(values) != 1 {
			r.Fail(name, "has the parameter %q; it takes starttls, once", key)
		}
	}
	s.startTLS = readStartTLS(r, name, s, query)
	return s
}

func readStartTLS(r *env.Reader, name string, s server, query url.Values) startTLS {
	mode := startTLS(query.Get("starttls"))
	switch {
	case s.implicitTLS && query.Has("starttls"):
		r.Fail(name, "has starttls, but smtps is encrypted from the start")
	case s.implicitTLS:
		return startTLSOff
	case !query.Has("starttls") && s.user != "":
		return startTLSRequired
	case !query.Has("starttls"):
		return startTLSOpportunistic
	case mode == startTLSOpportunistic && s.user != "":
		r.Fail(name, "has a password and starttls=opportunistic, which might send it in the clear: take required, or off if you mean that")
	case mode != startTLSRequired && mode != startTLSOpportunistic && mode != startTLSOff:
		r.Fail(name, "starttls=%s is not required, opportunistic or off", mode)
	}
	return mode
}
