package smtpsink_test

import (
	"errors"
	"net/smtp"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/orderfanout/internal/smtpsink"
)

func start(t *testing.T, cfg smtpsink.Config) *smtpsink.Sink {
	t.Helper()
	s, err := smtpsink.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func send(s *smtpsink.Sink, to string) error {
	return smtp.SendMail(s.Addr(), nil, "shop@example.com", []string{to}, []byte("Subject: x\r\n\r\nhello\r\n.dot\r\n"))
}

func TestKeepsEachMailAsAFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mail")
	var kept []string
	s := start(t, smtpsink.Config{Dir: dir, Kept: func(_ []string, file string) { kept = append(kept, file) }})
	for _, to := range []string{"ada@example.com", "../../x/y@example.com"} {
		if err := send(s, to); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(dir + "/*")
	if err != nil || len(files) != 2 || strings.Join(files, " ") != strings.Join(kept, " ") {
		t.Fatalf("files %q, kept %q, %v", files, kept, err)
	}
	if !strings.HasSuffix(files[0], "-ada@example.com.eml") {
		t.Errorf("name %s", files[0])
	}
	got, err := os.ReadFile(files[0])
	if err != nil || string(got) != "Subject: x\r\n\r\nhello\r\n.dot\r\n" {
		t.Errorf("mail %q, %v", got, err)
	}
}

func TestAnswersAsItIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	answers := map[int]error{
		1: smtpsink.Reply(451, "try later"),
		2: smtpsink.Reply(550, "no such user"),
		3: smtpsink.Reply(421, "closing"),
		4: smtpsink.ErrCut,
	}
	s := start(t, smtpsink.Config{
		Dir: dir,
		OnData: func(n int, from string, to []string, data []byte) error {
			if from != "shop@example.com" || len(to) != 1 || !strings.Contains(string(data), "hello") {
				t.Errorf("mail %d: %q to %q: %q", n, from, to, data)
			}
			return answers[n]
		},
	})
	for n, want := range []int{0, 451, 550, 421} {
		if n == 0 {
			continue
		}
		var reply *textproto.Error
		if err := send(s, "ada@example.com"); !errors.As(err, &reply) || reply.Code != want {
			t.Errorf("mail %d: %v, want %d", n, err, want)
		}
	}
	var reply *textproto.Error
	if err := send(s, "ada@example.com"); err == nil || errors.As(err, &reply) {
		t.Errorf("mail 4: %v, want a cut connection", err)
	}
	if files, _ := filepath.Glob(dir + "/*"); len(files) != 0 {
		t.Errorf("refused mails are kept: %q", files)
	}
	if err := send(s, "ada@example.com"); err != nil {
		t.Errorf("mail 5: %v", err)
	}
}
