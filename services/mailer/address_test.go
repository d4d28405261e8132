package main

import (
	"strings"
	"testing"
)

func TestParseMailbox(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"ada@example.test":               "<ada@example.test>",
		"ada@EXAMPLE.test":               "<ada@example.test>",
		"Ada+tea@example.test":           "<Ada+tea@example.test>",
		"user@bücher.test":               "<user@xn--bcher-kva.test>",
		"user@xn--bcher-kva.test":        "<user@xn--bcher-kva.test>",
		"пользователь@пример.test":       "<пользователь@xn--e1afmkfd.test>",
		`"ada lovelace"@example.test`:    `<"ada lovelace"@example.test>`,
		`"a>b"@example.test`:             `<"a>b"@example.test>`,
		"Ada <ada@example.test>":         "<ada@example.test>",
		strings.Repeat("a", 64) + "@b.c": "<" + strings.Repeat("a", 64) + "@b.c>",
	} {
		m, err := parseMailbox(in)
		if err != nil || m.path() != want {
			t.Errorf("%q is %s, %v; want %s", in, m.path(), err, want)
		}
	}
	for _, in := range []string{
		"", "ada", "@example.test", "ada@", "a@b.test, c@d.test", "a@b.test\r\nBcc: c@d.test", "\"a\r\nb\"@c.test",
		"a@b.test>", "a>b@c.test", "a b@c.test", "a@b c.test", "a@[127.0.0.1]", "a@b_c.test", "a@-b.test", "a@b..test",
		"a@\xffb.test", "a\x00@b.test", "a@" + strings.Repeat("b", 64) + ".test", strings.Repeat("a", 250) + "@b.test",
	} {
		m, err := parseMailbox(in)
		if err == nil {
			t.Errorf("%q is %s, want an error", in, m.path())
		} else if len(in) > 3 && strings.Contains(err.Error(), in) {
			t.Errorf("%q repeats the address", err)
		}
	}
}

func TestMask(t *testing.T) {
	t.Parallel()
	to := mailbox{local: "ada", domain: "example.test"}
	for in, want := range map[string]string{
		"550 no":                         "550 no",
		"550 <ada@example.test> unknown": "550 <a***@example.test> unknown",
		"550 ADA@example.test: no Ada":   "550 A***@example.test: no a***",
		"550 adamant refusal":            "550 adamant refusal",
		`550 "x y"@example.test is gone`: "550 x***@example.test is gone",
		"550 user=ada,other=bob@a.test":  "550 user=a***,o***@a.test",
		"550 пользователь@example.test":  "550 п***@example.test",
		"dial tcp 127.0.0.1:25: refused": "dial tcp 127.0.0.1:25: refused",
	} {
		if got := mask(in, to); got != want {
			t.Errorf("mask(%q) = %q, want %q", in, got, want)
		}
	}
	if got := mask("user a$b gone", mailbox{local: "a$b"}); got != "user a*** gone" {
		t.Error(got)
	}
}
