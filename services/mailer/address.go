package main

import (
	"errors"
	"net/mail"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// maxAddress is how long an address may be, in bytes (RFC 5321, section 4.5.3.1.3, less the brackets).
const maxAddress = 254

// mailbox is one address, with or without a person's name.
type mailbox struct {
	name string
	// local is what stands before the @, without quotes.
	local string
	// domain is what stands behind it, in its ASCII form (xn--…).
	domain string
}

// toASCII is idna.Lookup that also holds names to DNS's lengths.
var toASCII = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(true), idna.VerifyDNSLength(true))

// parseMailbox reads "ada@example.com", "ada@bücher.example" or "Ada <ada@example.com>". Its errors do not repeat the
// address.
func parseMailbox(s string) (mailbox, error) {
	parsed, err := mail.ParseAddress(s)
	if err != nil || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return mailbox{}, errors.New("not one mail address")
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	m := mailbox{name: parsed.Name, local: parsed.Address[:at]}
	if m.domain, err = toASCII.ToASCII(parsed.Address[at+1:]); err != nil {
		return mailbox{}, errors.New("the mail address has a domain that cannot be one")
	}
	if len(m.local)+1+len(m.domain) > maxAddress {
		return mailbox{}, errors.New("the mail address is too long")
	}
	return m, nil
}

// ascii reports whether every server can take the address: a local part has no ASCII form, only domains have.
func (m mailbox) ascii() bool {
	return !strings.ContainsFunc(m.local, func(r rune) bool { return r > unicode.MaxASCII })
}

// path returns the address for MAIL FROM and RCPT TO, in its brackets.
func (m mailbox) path() string {
	return (&mail.Address{Address: m.local + "@" + m.domain}).String()
}

// header returns the address for a header.
func (m mailbox) header() *mail.Address {
	return &mail.Address{Name: m.name, Address: m.local + "@" + m.domain}
}

// anAddress finds what looks like a mail address in a server's words.
var anAddress = regexp.MustCompile(`("[^"@]*"|[^\s<>()\[\],;:"@]+)@[^\s<>()\[\],;:"@]+`)

// mask hides mail addresses in text, and the words that are to's local part: servers name the user that they refuse.
// "ada@example.com" becomes "a***@example.com".
func mask(text string, to mailbox) string {
	text = anAddress.ReplaceAllStringFunc(text, func(found string) string {
		local, domain, _ := strings.Cut(found, "@")
		return maskLocal(strings.Trim(local, `"`)) + "@" + domain
	})
	if len(to.local) < 3 {
		return text // would hide ordinary words, and tells next to nothing
	}
	word := regexp.MustCompile(`(?i)(^|[^\pL\pN@*])` + regexp.QuoteMeta(to.local) + `($|[^\pL\pN@*])`)
	return word.ReplaceAllString(text, "${1}"+strings.ReplaceAll(maskLocal(to.local), "$", "$$")+"${2}")
}

func maskLocal(local string) string {
	_, size := utf8.DecodeRuneInString(local)
	return local[:size] + "***"
}
