package main

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"example.com/orderfanout/internal/problem"
)

// decoder walks over a body that is known to be valid JSON and valid UTF-8. Each method that reads a value starts at its
// first byte and ends behind its last.
type decoder struct {
	src       []byte
	pos       int
	item      int // index of the item that is being read, or -1
	errs      []problem.Field
	malformed bool // one of errs makes the body malformed, rather than out of range
}

// members calls member with the name of each member of the object, at the start of its value.
func (d *decoder) members(member func(name []byte)) {
	d.pos++
	for d.space(); d.src[d.pos] != '}'; d.space() {
		if d.src[d.pos] == ',' {
			d.pos++
			continue
		}
		name, _ := d.str() // one with half a surrogate pair is unknown anyway
		d.space()
		d.pos++ // the colon
		d.space()
		member(name)
	}
	d.pos++
}

// elements calls element at the start of each element of the array.
func (d *decoder) elements(element func()) {
	d.pos++
	for d.space(); d.src[d.pos] != ']'; d.space() {
		if d.src[d.pos] == ',' {
			d.pos++
			continue
		}
		element()
	}
	d.pos++
}

func (d *decoder) space() {
	for d.pos < len(d.src) {
		switch d.src[d.pos] {
		case ' ', '\t', '\r', '\n':
			d.pos++
		default:
			return
		}
	}
}

// str reads a string and resolves its escapes. It is false where an escape is half of a surrogate pair, which encoding/json
// would quietly replace.
func (d *decoder) str() (s []byte, ok bool) {
	d.pos++
	start := d.pos
	for d.src[d.pos] != '"' && d.src[d.pos] != '\\' {
		d.pos++
	}
	s, ok = d.src[start:d.pos], true
	if d.src[d.pos] == '\\' {
		s = append([]byte(nil), s...)
		for d.src[d.pos] != '"' {
			if d.src[d.pos] != '\\' {
				s = append(s, d.src[d.pos])
				d.pos++
				continue
			}
			r := d.escape()
			if utf16.IsSurrogate(r) {
				low := rune(0)
				if d.src[d.pos] == '\\' && d.src[d.pos+1] == 'u' {
					low = d.escape()
				}
				r = utf16.DecodeRune(r, low)
				ok = ok && r != utf8.RuneError
			}
			s = utf8.AppendRune(s, r)
		}
	}
	d.pos++
	return s, ok
}

// escape reads one escape, from its backslash on.
func (d *decoder) escape() rune {
	c := d.src[d.pos+1]
	d.pos += 2
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'u':
		n, _ := strconv.ParseUint(string(d.src[d.pos:d.pos+4]), 16, 16)
		d.pos += 4
		return rune(n)
	}
	return rune(c) // a quote, a slash or a backslash
}

// skip passes over any value. It keeps a count rather than calling itself, so depth costs nothing.
func (d *decoder) skip() {
	depth := 0
	for {
		switch d.src[d.pos] {
		case '"':
			d.pos++
			for d.src[d.pos] != '"' {
				if d.src[d.pos] == '\\' {
					d.pos++
				}
				d.pos++
			}
			d.pos++
		case '{', '[':
			depth++
			d.pos++
		case '}', ']':
			depth--
			d.pos++
		case ',', ':', ' ', '\t', '\r', '\n':
			d.pos++
			continue // no value ends here
		default: // a number, true, false or null
			for !endsScalar(d.src[d.pos]) {
				d.pos++
			}
		}
		if depth == 0 {
			return
		}
	}
}

func endsScalar(c byte) bool {
	switch c {
	case ',', ']', '}', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}
