package main

import (
	"fmt"
	"strings"
	"unicode"
)

// The limits of an order. Amounts are in minor units.
const (
	maxBody     = 64 << 10
	maxItems    = 100
	maxQuantity = 10_000
	maxPrice    = 1_000_000_000
	maxTotal    = 1_000_000_000_000
	maxName     = 64
	maxEmail    = 254
)

// checkName says what is wrong with a customer id or a SKU, or "".
func checkName(s string) string {
	if len(s) < 1 || len(s) > maxName {
		return fmt.Sprintf("must have 1 to %d characters", maxName)
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.Contains("._:-", s[i:i+1]) {
			return `may only have ASCII letters, digits and "._:-"`
		}
	}
	return ""
}

// checkCurrency says what is wrong with a currency, or "".
func checkCurrency(s string) string {
	if len(s) != 3 || !currencies[s] {
		return `must be an ISO 4217 code in capitals, for instance "EUR"`
	}
	return ""
}

// checkEmail says what is wrong with an address, or "". It takes one plain address, local@domain, as RFC 5321 and 6531
// have it, without quotes, comments, a display name or an address literal. What mail programs could read as the end of
// an address or a line is not in it, so nothing that goes into a header or an SMTP command needs escaping.
func checkEmail(s string) string {
	const detail = `must be one plain address, for instance "ada@example.com"`
	if len(s) > maxEmail {
		return fmt.Sprintf("must have at most %d bytes", maxEmail)
	}
	at := strings.IndexByte(s, '@')
	if at < 1 || at > 64 {
		return detail
	}
	for atom := range strings.SplitSeq(s[:at], ".") {
		if atom == "" || strings.ContainsFunc(atom, notInAtom) {
			return detail
		}
	}
	for label := range strings.SplitSeq(s[at+1:], ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || strings.ContainsFunc(label, notInLabel) {
			return detail
		}
	}
	return ""
}

func notInAtom(r rune) bool {
	if r < 0x80 {
		return !isAlphanumeric(byte(r)) && !strings.ContainsRune("!#$%&'*+-/=?^_`{|}~", r)
	}
	return notInWord(r)
}

func notInLabel(r rune) bool {
	if r < 0x80 {
		return !isAlphanumeric(byte(r)) && r != '-'
	}
	return notInWord(r)
}

// notInWord leaves out spaces, controls, invisible characters and look-alikes of punctuation.
func notInWord(r rune) bool {
	return r == unicode.ReplacementChar || !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.So)
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// currencies are the codes of ISO 4217 that money is in. The codes for testing, for no currency and for metals are left out.
var currencies = func() map[string]bool {
	set := make(map[string]bool)
	for code := range strings.FieldsSeq(`
		AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD
		CAD CDF CHE CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL
		GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD
		KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO
		NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD
		SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV
		WST XAF XCD XCG XDR XOF XPF YER ZAR ZMW ZWG`) {
		set[code] = true
	}
	return set
}()
