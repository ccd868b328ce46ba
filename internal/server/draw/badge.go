package draw

import (
	"fmt"
	"html"
	"unicode/utf8"
)

// letterWide is the mean width of a letter of a badge, and badgeGap the room beside a text.
const (
	letterWide = 6.6
	badgeGap   = 12
)

// Badge draws a label and a message beside each other. Other sites show it, so that it has colours of its own.
func Badge(label, message, color string) string {
	wide := func(text string) float64 {
		long := float64(utf8.RuneCountInString(text))
		for _, c := range text {
			if c > 0x2e7f { // of twice the width
				long++
			}
		}
		return long*letterWide + badgeGap
	}
	left, right := wide(label), wide(message)
	label, message, color = html.EscapeString(label), html.EscapeString(message), html.EscapeString(color)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]s" height="20" role="img" aria-label="%[4]s: %[5]s"><title>%[4]s: %[5]s</title>`+
		`<clipPath id="r"><rect width="%[1]s" height="20" rx="4"/></clipPath><g clip-path="url(#r)"><rect width="%[2]s" height="20" fill="#33373d"/><rect x="%[2]s" width="%[3]s" height="20" fill="%[6]s"/></g>`+
		`<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle"><text x="%[7]s" y="14">%[4]s</text><text x="%[8]s" y="14">%[5]s</text></g></svg>`,
		n(left+right), n(left), n(right), label, message, color, n(left/2), n(left+right/2))
}
