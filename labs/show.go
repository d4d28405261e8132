package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// say prints a line.
func (s *session) say(format string, args ...any) {
	s.clearProgress()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// step begins a part of the lab, with --step once Enter was typed.
func (s *session) step(ctx context.Context, format string, args ...any) {
	if s.stepwise {
		s.awaitEnter(ctx)
	}
	check(ctx.Err())
	s.steps++
	s.say("\n%s", s.bold(fmt.Sprintf("%d. ", s.steps)+fmt.Sprintf(format, args...)))
}

// awaitEnter waits for a line of the input. Where there is no more input, nobody is there to wait for.
func (s *session) awaitEnter(ctx context.Context) {
	if s.typed == nil {
		s.typed = readLines(s.in)
	}
	s.clearProgress()
	fmt.Fprint(s.out, "\n   Enter goes on ")
	select {
	case _, ok := <-s.typed:
		if !ok {
			fmt.Fprintln(s.out)
		}
	case <-ctx.Done():
	}
}

func readLines(in io.Reader) <-chan bool {
	lines := make(chan bool)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(in); scanner.Scan(); {
			lines <- true
		}
	}()
	return lines
}

// note prints a remark under a step.
func (s *session) note(format string, args ...any) {
	s.say("   "+format, args...)
}

// do sends a command to the lab's Redis and prints it, and its reply, as redis-cli does. A reply that is an error is printed and no
// failure of the lab: some labs want to show it.
func (s *session) do(ctx context.Context, args ...any) any {
	return s.send(ctx, "redis", s.hand, args...)
}

// doer is a client or one connection.
type doer interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// send is do for a server that the lab prints under this name.
func (s *session) send(ctx context.Context, name string, to doer, args ...any) any {
	s.say("   %s> %s", name, s.bold(commandText(args)))
	reply, err := to.Do(ctx, args...).Result()
	if refused := redis.Error(nil); err != nil && !errors.As(err, &refused) {
		check(fmt.Errorf("%s: %w", args[0], err))
	}
	s.say("   %s", strings.ReplaceAll(replyText(reply, err), "\n", "\n   "))
	return reply
}

// count is do for a command that answers a number.
func (s *session) count(ctx context.Context, args ...any) int {
	n, ok := s.do(ctx, args...).(int64)
	if !ok {
		check(fmt.Errorf("%s did not answer a number", commandText(args)))
	}
	return int(n)
}

// ask is count without printing anything.
func (s *session) ask(ctx context.Context, args ...any) int {
	return int(must(s.redis.Do(ctx, args...).Int64()))
}

// table ends a lab: what was counted. Numbers of type int are grouped and stand to the right, as does all but the first column.
func (s *session) table(head []string, rows ...[]any) {
	lines := [][]string{head}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if n, ok := cell.(int); ok {
				cell = thousands(n)
			}
			cells[i] = fmt.Sprint(cell)
		}
		lines = append(lines, cells)
	}
	width := make([]int, len(head))
	for _, cells := range lines {
		for i, cell := range cells {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	s.say("\n%s", s.bold("Counted"))
	for _, cells := range lines {
		text := "   "
		for i, cell := range cells {
			space := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				text += cell + space
			} else {
				text += "  " + space + cell
			}
		}
		s.say("%s", strings.TrimRight(text, " "))
	}
}

// conclude prints what follows from the table.
func (s *session) conclude(format string, args ...any) {
	s.say("\n%s %s", s.bold("So:"), fmt.Sprintf(format, args...))
}

// progress shows how far a part is that takes longer than two seconds: one line that changes on a terminal, a line every two
// seconds elsewhere.
func (s *session) progress(what string, done, total int) {
	if s.told.IsZero() || done == 0 {
		s.told = time.Now()
		return
	}
	terminal := isTerminal(s.progressTo)
	pause := 2 * time.Second
	if s.line {
		pause = 200 * time.Millisecond
	}
	if time.Since(s.told) < pause {
		return
	}
	s.told = time.Now()
	text := fmt.Sprintf("   %s: %s of %s", what, thousands(done), thousands(total))
	if terminal {
		fmt.Fprintf(s.progressTo, "\r\x1b[K%s", text)
		s.line = true
	} else {
		fmt.Fprintln(s.progressTo, text)
	}
}

func (s *session) clearProgress() {
	s.told = time.Time{}
	if s.line {
		fmt.Fprint(s.progressTo, "\r\x1b[K")
		s.line = false
	}
}

func (s *session) bold(text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[1;36m" + text + "\x1b[0m"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
