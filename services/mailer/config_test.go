package main

import (
	"strings"
	"testing"
	"time"
)

func getenv(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestReadConfig(t *testing.T) {
	t.Parallel()
	cfg, err := readConfig(getenv(map[string]string{"REDIS_URL": "redis://localhost:6379", "SMTP_URL": "smtp://mailpit:1025"}))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.HTTPAddr != ":8081" || cfg.Consumer.Group != "mailer" || cfg.Consumer.Concurrency != 16 ||
		cfg.Consumer.HandlerTimeout != 30*time.Second || cfg.Retention.Processed != 9*24*time.Hour ||
		cfg.From.path() != "<orders@orderfanout.example.com>" || cfg.From.name != "orderfanout" {
		t.Errorf("defaults: %+v", cfg)
	}

	_, err = readConfig(getenv(map[string]string{
		"REDIS_URL": "redis://host/notanumber", "SMTP_URL": "http://x", "MAIL_FROM": "me", "CONCURRENCY": "0",
		"PROCESSED_RETENTION": "7d", "HTTP_ADDR": "x",
	}))
	for _, name := range []string{"REDIS_URL", "SMTP_URL", "MAIL_FROM", "CONCURRENCY", "PROCESSED_RETENTION", "HTTP_ADDR"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in %v", name, err)
		}
	}
	_, err = readConfig(getenv(nil))
	for _, name := range []string{"REDIS_URL", "SMTP_URL"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in %v", name, err)
		}
	}
	_, err = readConfig(getenv(map[string]string{"REDIS_URL": "redis://h", "SMTP_URL": "smtp://h", "MAIL_FROM": "я@shop.test"}))
	if err == nil || !strings.Contains(err.Error(), "MAIL_FROM") {
		t.Errorf("got %v", err)
	}
}

func TestReadSMTP(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]server{
		"smtp://mail.test":                   {addr: "mail.test:25", host: "mail.test", startTLS: startTLSOpportunistic},
		"smtp://mail.test:1025/":             {addr: "mail.test:1025", host: "mail.test", startTLS: startTLSOpportunistic},
		"smtp://[::1]:25":                    {addr: "[::1]:25", host: "::1", startTLS: startTLSOpportunistic},
		"smtp://u:p%40ss@mail.test:587":      {addr: "mail.test:587", host: "mail.test", startTLS: startTLSRequired, user: "u", password: "p@ss"},
		"smtp://u:p@mail.test?starttls=off":  {addr: "mail.test:25", host: "mail.test", startTLS: startTLSOff, user: "u", password: "p"},
		"smtp://mail.test?starttls=required": {addr: "mail.test:25", host: "mail.test", startTLS: startTLSRequired},
		"smtps://me%40shop.test:p@mail.test": {addr: "mail.test:465", host: "mail.test", startTLS: startTLSOff, implicitTLS: true, user: "me@shop.test", password: "p"},
	} {
		cfg, err := readConfig(getenv(map[string]string{"REDIS_URL": "redis://h", "SMTP_URL": in}))
		if err != nil || cfg.SMTP != want {
			t.Errorf("%s is %+v, %v; want %+v", in, cfg.SMTP, err, want)
		}
	}
	for _, in := range []string{
		"mail.test:25", "http://mail.test", "smtp://", "smtp://:25", "smtp://mail.test:x", "smtp://mail.test:0", "smtp://mail.test:65536", "smtp://secret@mail.test", "smtp://:secret@mail.test",
		"smtp://mail.test/secret", "smtp://mail.test?starttls=maybe", "smtp://mail.test?tls=off", "smtp://mail.test?starttls=off&starttls=off",
		"smtp://u:secret@mail.test?starttls=opportunistic", "smtps://mail.test?starttls=off", "smtp://mail.test?starttls=", "smtp://mail.test#x",
		"smtp://mail.test?%zz",
	} {
		_, err := readConfig(getenv(map[string]string{"REDIS_URL": "redis://h", "SMTP_URL": in}))
		if err == nil || !strings.Contains(err.Error(), "SMTP_URL") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", in, err)
		}
	}
}
