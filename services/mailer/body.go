package main

import (
	"fmt"
	"html"
	"strings"
)

// The bodies are written by hand: text/template finds methods by name at run time, with which the linker keeps every method of
// every type, and the program is 10 MB larger.

// text is the plain body.
func (v orderView) text() string {
	var b strings.Builder
	b.WriteString("Thank you for your order. We have it, and this is what you ordered:\n\n")
	for _, item := range v.Items {
		fmt.Fprintf(&b, "  %d × %s at %s = %s\n", item.Quantity, item.SKU, item.Price, item.Sum)
	}
	fmt.Fprintf(&b, "\nTotal: %s\n\nOrder %s, placed on %s.\n", v.Total, v.ID, v.Placed)
	return b.String()
}

// html is the same for a page. Whatever came from outside is escaped.
func (v orderView) html() string {
	esc := html.EscapeString
	var b strings.Builder
	b.WriteString(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Your order</title></head>
<body style="font-family: sans-serif; color: #222">
<p>Thank you for your order. We have it, and this is what you ordered:</p>
<table cellpadding="6" style="border-collapse: collapse">
<tr style="text-align: left"><th>Quantity</th><th>Article</th><th>Price</th><th>Sum</th></tr>
`)
	for _, item := range v.Items {
		fmt.Fprintf(&b, "<tr style=\"border-top: 1px solid #ccc\"><td>%d</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
			item.Quantity, esc(item.SKU), esc(item.Price), esc(item.Sum))
	}
	fmt.Fprintf(&b, `<tr style="border-top: 2px solid #222"><td></td><td></td><th>Total</th><th>%s</th></tr>
</table>
<p style="color: #666">Order %s, placed on %s.</p>
</body>
</html>
`, esc(v.Total), esc(v.ID), esc(v.Placed))
	return b.String()
}
