package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// plot draws the rates of all works but those on latency as bars on a logarithmic scale, in SVG.
func plot(r report) []byte {
	r.Works = slices.DeleteFunc(slices.Clone(r.Works), func(w summary) bool { return w.Lines[0].P50 > 0 })
	const left, width, bar, gap, head = 250, 560, 16, 4, 30
	height := 40
	for _, w := range r.Works {
		height += head + len(w.Lines)*(bar+gap)
	}
	var b bytes.Buffer
	text := func(x, y int, anchor, style, s string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, style, html.EscapeString(s))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", left+width+90, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	const least, most = 2.0, 6.0 // powers of ten
	y := 10
	for _, w := range r.Works {
		text(4, y+18, "start", `font-weight="bold"`, w.Work+", "+w.Unit)
		y += head
		for _, l := range w.Lines {
			long := int(width * (math.Log10(max(l.Rate, 100)) - least) / (most - least))
			colour := "#9aa5b1"
			if strings.HasPrefix(l.Name, "ours") {
				colour = "#2563eb"
			}
			text(left-6, y+bar-4, "end", "", l.Name)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", left, y, long, bar, colour)
			text(left+long+5, y+bar-4, "start", "", thousands(l.Rate))
			y += bar + gap
		}
	}
	text(4, y+22, "start", `fill="#555"`, r.Machine+"; each step of 140 to the right is ten times as much")
	b.WriteString("</svg>\n")
	return b.Bytes()
}
