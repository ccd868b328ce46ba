package web

import (
	"strconv"
	"strings"
)

// ansiPart is a piece of a line in one look.
type ansiPart struct{ Class, Text string }

// ansi reads the colours of terminals. Nothing but colours and weights is taken from a text:
// no links, no titles, no movement of the cursor. The look continues from line to line.
type ansi struct {
	colour int // 0 none, else a class a1 to a8
	bold   bool
}

// parts divides a line where its look changes.
func (a *ansi) parts(line string) (list []ansiPart) {
	add := func(text string) {
		if text = clean(text); text != "" {
			list = append(list, ansiPart{a.class(), text})
		}
	}
	for {
		at := strings.IndexByte(line, 0x1b)
		if at < 0 {
			add(line)
			return list
		}
		add(line[:at])
		line = a.sequence(line[at+1:])
	}
}

// sequence takes a control sequence, behind its escape character, and returns what is left.
func (a *ansi) sequence(text string) string {
	switch {
	case strings.HasPrefix(text, "["):
		end := strings.IndexFunc(text[1:], func(r rune) bool { return r >= 0x40 && r <= 0x7e })
		if end < 0 {
			return ""
		}
		if text[1+end] == 'm' {
			a.look(text[1 : 1+end])
		}
		return text[2+end:]
	case strings.HasPrefix(text, "]"): // a title or a link, to its end
		if end := strings.IndexAny(text, "\a\x1b"); end >= 0 {
			return strings.TrimPrefix(text[end+1:], "\\")
		}
		return ""
	case text == "":
		return ""
	}
	return text[1:]
}

// look applies the numbers of a colour sequence.
func (a *ansi) look(numbers string) {
	list := strings.FieldsFunc(numbers, func(r rune) bool { return r == ';' || r == ':' })
	if len(list) == 0 {
		*a = ansi{}
	}
	for i := 0; i < len(list); i++ {
		n, err := strconv.Atoi(list[i])
		if err != nil {
			continue
		}
		switch {
		case n == 0:
			*a = ansi{}
		case n == 1:
			a.bold = true
		case n == 22:
			a.bold = false
		case n == 39:
			a.colour = 0
		case n >= 30 && n <= 37:
			a.colour = tones[n-30]
		case n >= 90 && n <= 97:
			a.colour = tones[n-90]
			if n == 90 {
				a.colour = 8
			}
		case n == 38 && i+2 < len(list) && list[i+1] == "5":
			c, _ := strconv.Atoi(list[i+2])
			a.colour = toneOf256(c)
			i += 2
		case n == 38 && i+4 < len(list) && list[i+1] == "2":
			r, _ := strconv.Atoi(list[i+2])
			g, _ := strconv.Atoi(list[i+3])
			b, _ := strconv.Atoi(list[i+4])
			a.colour = toneOf(r, g, b)
			i += 4
		case n == 48 && i+2 < len(list) && list[i+1] == "5":
			i += 2
		case n == 48 && i+4 < len(list) && list[i+1] == "2":
			i += 4
		}
	}
}

// tones are the classes of the eight colours: black, red, green, yellow, blue, magenta, cyan,
// white. Each has enough contrast in both themes; black and white are the text itself.
var tones = [8]int{0, 1, 2, 3, 4, 5, 4, 0}

func toneOf256(c int) int {
	switch {
	case c < 8:
		return tones[max(c, 0)]
	case c < 16:
		return tones[c-8]
	case c >= 232:
		return 8
	}
	c -= 16
	return toneOf(c/36*51, c/6%6*51, c%6*51)
}

// toneOf returns the class that is nearest to a colour.
func toneOf(r, g, b int) int {
	high, low := max(r, g, b), min(r, g, b)
	switch {
	case high-low < 40 && high > 60 && high < 200:
		return 8
	case high-low < 40:
		return 0
	case r == high && g > (r+low)/2 && g > b:
		return 3
	case r == high && b > (r+low)/2:
		return 5
	case r == high:
		return 1
	case g == high && b < (g+low)*2/3:
		return 2
	}
	return 4
}

func (a *ansi) class() string {
	var list []string
	if a.colour > 0 {
		list = append(list, "a"+strconv.Itoa(a.colour))
	}
	if a.bold {
		list = append(list, "ab")
	}
	return strings.Join(list, " ")
}
