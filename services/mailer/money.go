package main

import "strconv"

// decimals are the currencies whose minor unit is not a hundredth (ISO 4217).
var decimals = map[string]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0,
	"UYI": 0, "VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
	"CLF": 4, "UYW": 4,
}

// money writes an amount in minor units, which is not negative, as people do: 1250 EUR is "12.50 EUR", 1250 JPY is
// "1250 JPY".
func money(minor int64, currency string) string {
	places, ok := decimals[currency]
	if !ok {
		places = 2
	}
	s := strconv.FormatInt(minor, 10)
	for len(s) <= places {
		s = "0" + s
	}
	if places > 0 {
		s = s[:len(s)-places] + "." + s[len(s)-places:]
	}
	return s + " " + currency
}
