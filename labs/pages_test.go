package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/orderfanout/internal/localserver/servertest"
)

var update = flag.Bool("update", false, "write what was really answered and printed into the pages of docs/labs")

// fence is a block of a page, by what stands behind its first fence.
var fence = regexp.MustCompile("(?s)```(redis|console)\n(.*?)```\n")

// TestPages types the commands of every page, in its redis blocks, into a real server and compares the replies. "> " begins a
// command; "A> " and "B> " are two terminals. Entry ids, and numbers of more than three digits, such as times, may differ.
func TestPages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/labs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			text := readPage(t, page)
			server := servertest.Redis(t)
			p := &player{t: t, server: server, terminals: map[string]*redis.Conn{}, ids: map[string]string{}}
			typed := fence.ReplaceAllStringFunc(text, func(block string) string {
				if m := fence.FindStringSubmatch(block); m[1] == "redis" {
					return "```redis\n" + p.play(m[2]) + "```\n"
				}
				return block
			})
			writePage(t, page, text, typed)
		})
	}
}

// player types a page's commands. ids has the entry ids of now for those that stand on the page; seen has those of now in their
// order, so that a new page may say {1} for the first.
type player struct {
	t         *testing.T
	seen      []string
	server    interface{ Options() *redis.Options }
	terminals map[string]*redis.Conn
	ids       map[string]string
}

var (
	prompt  = regexp.MustCompile(`^([A-Z]?)> (.*)$`)
	entryID = regexp.MustCompile(`\b\d{13}-\d+`)
	number  = regexp.MustCompile(`\d{4,}`)

	// XPENDING with a range answers how long ago an entry was handed out. On a page it is twelve seconds, as for one who types.
	idleTimes = regexp.MustCompile(`^XPENDING \S+ \S+ \S+ \S+ \d+`)
	idleTime  = regexp.MustCompile(`(?m)^( *3\) \(integer\) )\d+$`)
)

func (p *player) play(block string) string {
	var out, command string
	var reply []string
	finish := func() {
		if command == "" {
			return
		}
		m := prompt.FindStringSubmatch(command)
		typed := entryID.ReplaceAllStringFunc(m[2], func(id string) string {
			if now, ok := p.ids[id]; ok {
				return now
			}
			return id
		})
		for i, id := range p.seen {
			typed = strings.ReplaceAll(typed, fmt.Sprintf("{%d}", i+1), id)
		}
		got := p.send(m[1], typed)
		want := strings.Join(reply, "\n")
		before, now := entryID.FindAllString(want, -1), entryID.FindAllString(got, -1)
		for i := range min(len(before), len(now)) {
			p.ids[before[i]] = now[i]
		}
		for _, id := range now {
			if !slices.Contains(p.seen, id) {
				p.seen = append(p.seen, id)
			}
		}
		if idleTimes.MatchString(typed) {
			want, got = idleTime.ReplaceAllString(want, "${1}12000"), idleTime.ReplaceAllString(got, "${1}12000")
		}
		if !*update && general(want) != general(got) {
			p.t.Errorf("> %s\nanswered\n%s\nand the page says\n%s", typed, got, want)
		}
		out += m[1] + "> " + typed + "\n" + got + "\n"
	}
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		if prompt.MatchString(line) {
			finish()
			command, reply = line, nil
		} else {
			reply = append(reply, line)
		}
	}
	finish()
	return out
}

// general leaves out what differs from run to run.
func general(text string) string {
	return number.ReplaceAllString(entryID.ReplaceAllString(text, "ID"), "N")
}

// words splits a line as redis-cli does, as far as the pages need it.
var words = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\S+`)

func (p *player) send(terminal, line string) string {
	var args []any
	for _, text := range words.FindAllString(line, -1) {
		if unquoted, err := strconv.Unquote(text); err == nil {
			text = unquoted
		}
		args = append(args, text)
	}
	conn := p.terminals[terminal]
	if conn == nil {
		client := newClient(p.server.Options())
		conn = client.Conn()
		p.t.Cleanup(func() { conn.Close(); client.Close() })
		p.terminals[terminal] = conn
	}
	return replyText(conn.Do(p.t.Context(), args...).Result())
}

// comparePage compares what a lab has printed with its page: the steps, the columns and lines of its table, and the conclusion.
func comparePage(t *testing.T, args []string, stdout string) {
	t.Helper()
	pages, _ := filepath.Glob("../docs/labs/*-" + args[0] + ".md")
	for _, page := range pages {
		text, found := readPage(t, page), false
		command := "$ go run ./labs " + strings.Join(args, " ") + "\n"
		written := fence.ReplaceAllStringFunc(text, func(block string) string {
			m := fence.FindStringSubmatch(block)
			before, ok := strings.CutPrefix(m[2], command)
			if m[1] != "console" || !ok {
				return block
			}
			found = true
			if !*update && frame(before) != frame(stdout) {
				t.Errorf("%s shows another run:\n%s\nthan\n%s", page, frame(before), frame(stdout))
			}
			return "```console\n" + command + stdout + "```\n"
		})
		if !found {
			t.Errorf("%s does not show %s", page, command)
		}
		writePage(t, page, text, written)
	}
}

var (
	step    = regexp.MustCompile(`(?m)^\d+\. .*$`)
	digits  = regexp.MustCompile(`[\d.,]*\d`)
	spacing = regexp.MustCompile(` +`)
)

// frame is what does not change from run to run.
func frame(stdout string) string {
	_, counted, _ := strings.Cut(stdout, "\nCounted\n")
	text := strings.Join(step.FindAllString(stdout, -1), "\n") + "\n" + counted
	return spacing.ReplaceAllString(digits.ReplaceAllString(text, "n"), " ")
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func writePage(t *testing.T, page, before, now string) {
	t.Helper()
	if !*update || before == now {
		return
	}
	if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPageOfEachLab shows that each lab has its page, numbered by the order of the list, and that links between files lead somewhere.
func TestPageOfEachLab(t *testing.T) {
	t.Parallel()
	for i, l := range labs() {
		if _, err := os.Stat(fmt.Sprintf("../docs/labs/%02d-%s.md", i+1, l.name)); err != nil {
			t.Error(err)
		}
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	pages, _ := filepath.Glob("../docs/labs/*.md")
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(readPage(t, page), -1) {
			if _, err := os.Stat(filepath.Join("../docs/labs", m[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
	}
}
