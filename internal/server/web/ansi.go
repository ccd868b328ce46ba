package web

import (
	"strconv"
	"strings"
)

// ansiPart is a piece of a line in one look.
type ansiPart struct{ Class, Text string }

// ansi reads the looks of terminals. Nothing but colours, weights and lines is taken from a text:
// no links, no titles, no movement of the cursor. The look continues from line to line.
type ansi struct {
	colour, ground   int // 0 none, else a class a1 to a8, or b1 to b8 behind the text
	bold, underlined bool
	inverse          bool
}

// shown returns what a terminal shows of a line with carriage returns: what follows one is written over
// the beginning. Over text with colours it replaces the whole.
func shown(line string) string {
	if !strings.Contains(line, "\r") {
		return line
	}
	var seen string
	for part := range strings.SplitSeq(line, "\r") {
		switch {
		case part == "":
		case strings.Contains(seen+part, "\x1b"):
			seen = part
		default:
			over := []rune(seen)
			over = over[min(len([]rune(part)), len(over)):]
			seen = part + string(over)
		}
	}
	return seen
}

// parts divides a line where its look changes.
func (a *ansi) parts(line string) (list []ansiPart) {
	line = shown(line)
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
		case n == 4:
			a.underlined = true
		case n == 24:
			a.underlined = false
		case n == 7:
			a.inverse = true
		case n == 27:
			a.inverse = false
		case n == 38 || n == 48:
			tone, read := chosen(list[i+1:])
			if i += read; n == 38 {
				a.colour = tone
			} else {
				a.ground = tone
			}
		case n >= 30 && n <= 39:
			a.colour = toneAt(n - 30)
		case n >= 40 && n <= 49:
			a.ground = toneAt(n - 40)
		case n >= 90 && n <= 97:
			a.colour = toneAt(n - 90)
			if n == 90 {
				a.colour = 8
			}
		case n >= 100 && n <= 107:
			a.ground = toneAt(n - 100)
			if n == 100 {
				a.ground = 8
			}
		}
	}
}

// chosen returns the tone of a colour of 256 or of 16 million, and how many numbers tell it.
func chosen(list []string) (tone, read int) {
	number := func(i int) int {
		n, _ := strconv.Atoi(list[i]) // what is no number is 0
		return n
	}
	switch {
	case len(list) >= 2 && list[0] == "5":
		return toneOf256(number(1)), 2
	case len(list) >= 4 && list[0] == "2":
		return toneOf(number(1), number(2), number(3)), 4
	}
	return 0, len(list)
}

// tones are the classes of the eight colours: black, red, green, yellow, blue, magenta, cyan,
// white. Each has enough contrast in both themes; black and white are the text itself.
var tones = [8]int{0, 1, 2, 3, 4, 5, 6, 0}

// toneAt is the class of one of the eight colours, and 0 for the usual one.
func toneAt(n int) int {
	if n < 0 || n >= len(tones) {
		return 0
	}
	return tones[n]
}

func toneOf256(c int) int {
	switch {
	case c < 16:
		if c == 8 {
			return 8
		}
		return toneAt(c % 8)
	case c >= 232:
		return 8
	}
	c -= 16
	level := func(n int) int { // of the cube of 216 colours
		if n == 0 {
			return 0
		}
		return 55 + 40*n
	}
	return toneOf(level(c/36), level(c/6%6), level(c%6))
}

// hues are the ends of the hues of the classes, in degrees: red, orange, yellow, green, cyan, blue and
// magenta. The rest is red again.
var hues = [...]struct{ end, class int }{{18, 1}, {44, 7}, {70, 3}, {165, 2}, {200, 6}, {262, 4}, {345, 5}}

// toneOf returns the class that is nearest to a colour.
func toneOf(r, g, b int) int {
	high, low := max(r, g, b), min(r, g, b)
	spread := high - low
	switch {
	case spread < 40 && high > 60 && high < 200:
		return 8
	case spread < 40:
		return 0
	}
	hue := 0
	switch high {
	case r:
		hue = (60*(g-b)/spread + 360) % 360
	case g:
		hue = 60*(b-r)/spread + 120
	default:
		hue = 60*(r-g)/spread + 240
	}
	for _, h := range hues {
		if hue < h.end {
			return h.class
		}
	}
	return 1
}

// class is the look: an inverted one has its colour behind the text.
func (a *ansi) class() string {
	var list []string
	colour, ground := a.colour, a.ground
	if a.inverse {
		if colour, ground = ground, colour; ground == 0 {
			list = append(list, "ai")
		}
	}
	if colour > 0 && !(a.inverse && ground == 0) {
		list = append(list, "a"+strconv.Itoa(colour))
	}
	if ground > 0 {
		list = append(list, "b"+strconv.Itoa(ground))
	}
	if a.bold {
		list = append(list, "ab")
	}
	if a.underlined {
		list = append(list, "au")
	}
	return strings.Join(list, " ")
}
