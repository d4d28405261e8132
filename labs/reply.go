package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// mostShown is how many arguments of a command, or elements of a reply, are printed.
const mostShown = 12

// longestShown is from where on a word is shortened.
const longestShown = 60

// commandText is the command as one would type it in redis-cli. Of a very long one the middle is left out, and it says so.
func commandText(args []any) string {
	words := make([]string, 0, len(args))
	for i, arg := range args {
		if len(args) > mostShown+4 && i == mostShown {
			words = append(words, "…", word(args[len(args)-1]), fmt.Sprintf("  (%s arguments)", thousands(len(args)-1)))
			break
		}
		words = append(words, word(arg))
	}
	return strings.Join(words, " ")
}

// word quotes an argument where redis-cli needs it quoted.
func word(arg any) string {
	text := fmt.Sprint(arg)
	if len(text) > longestShown && !strings.Contains(text, " ") {
		return fmt.Sprintf("%s…(%d bytes)", text[:longestShown/2], len(text))
	}
	if text == "" || strings.ContainsAny(text, " \"'\n\t") {
		return strconv.Quote(text)
	}
	return text
}

// replyText is the reply as redis-cli prints it on a terminal.
func replyText(reply any, err error) string {
	if errors.Is(err, redis.Nil) {
		return "(nil)"
	}
	if err != nil {
		return "(error) " + err.Error()
	}
	return elementText("", reply)
}

func elementText(indent string, reply any) string {
	switch v := reply.(type) {
	case nil:
		return "(nil)"
	case int64:
		return fmt.Sprintf("(integer) %d", v)
	case string:
		if v == "OK" || v == "QUEUED" { // redis-cli quotes no status
			return v
		}
		return strconv.Quote(v)
	case []any:
		if len(v) == 0 {
			return "(empty array)"
		}
		width := len(strconv.Itoa(len(v)))
		var lines []string
		for i, element := range v {
			if len(v) > mostShown+4 && i == mostShown {
				lines = append(lines, fmt.Sprintf("… %s more", thousands(len(v)-i)))
				break
			}
			lines = append(lines, fmt.Sprintf("%*d) %s", width, i+1, elementText(indent+strings.Repeat(" ", width+2), element)))
		}
		return strings.Join(lines, "\n"+indent)
	default:
		return fmt.Sprint(v)
	}
}

// thousands groups the digits of a whole number.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
