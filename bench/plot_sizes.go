package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
)

// plotSizes draws a curve for each work: its rate, from 0 up, against the size, of which each step is ten times the one before.
func plotSizes(r report) []byte {
	const columns, width, height, left, top, right, bottom = 2, 440, 190, 70, 40, 20, 36
	var b bytes.Buffer
	text := func(x, y float64, anchor, style, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, style, html.EscapeString(s))
	}
	rows := (len(r.Works) + columns - 1) / columns
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", columns*width, rows*height+24)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i, w := range r.Works {
		x0, y0 := float64(i%columns*width+left), float64(i/columns*height+top)
		wide, high := float64(width-left-right), float64(height-top-bottom)
		most, largest := 0.0, 1.0
		for _, l := range w.Lines {
			most, largest = max(most, l.Most), max(largest, decade(l.Size))
		}
		text(x0, y0-14, "start", `font-weight="bold"`, w.Work+", "+w.Unit)
		fmt.Fprintf(&b, `<path d="M%.1f %.1fv%.1fh%.1f" fill="none" stroke="#555"/>`+"\n", x0, y0, high, wide)
		text(x0-6, y0+8, "end", `fill="#555"`, thousands(most))
		text(x0-6, y0+high, "end", `fill="#555"`, "0")
		var curve bytes.Buffer
		for j, l := range w.Lines {
			x := x0 + wide*decade(l.Size)/largest
			y := func(rate float64) float64 { return y0 + high*(1-rate/most) }
			fmt.Fprintf(&curve, "%c%.1f %.1f", "ML"[min(j, 1)], x, y(l.Rate))
			fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f" stroke="#93b4f5" stroke-width="3"/>`+"\n", x, y(l.Least), y(l.Most))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="#2563eb"/>`+"\n", x, y(l.Rate))
			text(x, y0+high+16, "middle", `fill="#555"`, short(l.Size))
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="#2563eb"/>`+"\n", curve.Bytes())
	}
	text(4, float64(rows*height+16), "start", `fill="#555"`, r.Machine+"; medians, and the span of all rounds")
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// decade is where a size stands on the scale: 0 at 0, then one more for each power of ten beyond 1.
func decade(size int) float64 {
	if size == 0 {
		return 0
	}
	return 1 + math.Log10(float64(size))
}

// short is a size in a few letters: 10k, 5M.
func short(size int) string {
	switch {
	case size >= 1_000_000:
		return fmt.Sprintf("%gM", float64(size)/1e6)
	case size >= 1000:
		return fmt.Sprintf("%gk", float64(size)/1e3)
	}
	return fmt.Sprint(size)
}
