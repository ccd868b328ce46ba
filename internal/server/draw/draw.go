// Package draw makes the charts of the web UI as SVG: rectangles, lines and words with the
// classes of the style sheet and no colour of their own. All text is escaped here. It is pure:
// it reads no clock, and the caller words times and labels.
package draw

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// Class is the style of a mark.
type Class string

// The styles of marks.
const (
	OK     Class = "f-ok"
	Fail   Class = "f-fail"
	Time   Class = "f-time" // timed out: hatched
	Run    Class = "f-run"
	Lost   Class = "f-lost"
	Mute   Class = "f-mute"   // skipped or cancelled: a stub
	Missed Class = "f-missed" // hollow
	Plan   Class = "f-plan"
	Next   Class = "f-next" // load to come
)

// isMarked reports whether a mark has a stroke below it, which is visible without colour.
func isMarked(c Class) bool { return c == Fail || c == Time || c == Missed || c == Lost }

// svg writes the elements of a picture.
type svg struct{ strings.Builder }

// linkedHeat is the class of a heat map whose rows are links.
const linkedHeat = "viz heat days"

// open begins a picture: a chart is a group, since it may have links, and other pictures are
// images.
func open(class, label string, y, w, h float64) *svg {
	s := &svg{}
	role := "img"
	if class == "viz" || class == linkedHeat {
		role = "group"
	}
	fmt.Fprintf(s, `<svg class="%s" viewBox="0 %s %s %s" role="%s" aria-label="%s">`, class, n(y), n(w), n(h), role, html.EscapeString(label))
	return s
}

// link begins a link with a name for screen readers, and returns a function that ends it. Without
// an address both do nothing.
func (s *svg) link(address, name string) (end func()) {
	if address == "" {
		return func() {}
	}
	fmt.Fprintf(s, `<a href="%s" aria-label="%s">`, html.EscapeString(address), html.EscapeString(name))
	return func() { s.WriteString("</a>") }
}

func (s *svg) close() string {
	s.WriteString("</svg>")
	return s.String()
}

// n writes a coordinate.
func n(v float64) string {
	text := fmt.Sprintf("%.1f", v)
	return strings.TrimSuffix(text, ".0")
}

func (s *svg) rect(x, y, w, h, r float64, class, title string) {
	fmt.Fprintf(s, `<rect x="%s" y="%s" width="%s" height="%s"`, n(x), n(y), n(max(w, 0)), n(max(h, 0)))
	if r > 0 {
		fmt.Fprintf(s, ` rx="%s"`, n(r))
	}
	fmt.Fprintf(s, ` class="%s"`, class)
	if title == "" {
		s.WriteString("/>")
		return
	}
	fmt.Fprintf(s, "><title>%s</title></rect>", html.EscapeString(title))
}

func (s *svg) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(s, `<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"/>`, n(x1), n(y1), n(x2), n(y2), class)
}

func (s *svg) text(x, y float64, class, anchor, text string) {
	fmt.Fprintf(s, `<text x="%s" y="%s"`, n(x), n(y))
	if class != "" {
		fmt.Fprintf(s, ` class="%s"`, class)
	}
	if anchor != "" {
		fmt.Fprintf(s, ` text-anchor="%s"`, anchor)
	}
	fmt.Fprintf(s, ">%s</text>", html.EscapeString(text))
}

// Mark is one run in a strip or a chart.
type Mark struct {
	Class Class
	Value float64 // its height; 0 for a run that did not start
	Title string
	Link  string // "" for none
	Tick  string // below it
	Note  string // a preceding change, such as a version
}

// stripMarks are how many marks a strip has room for.
const stripMarks = 20

// Strip draws the last runs of a job, the latest on the right, for a row of a table.
func Strip(label string, marks []Mark) string {
	if len(marks) == 0 {
		return ""
	}
	if len(marks) > stripMarks {
		marks = marks[len(marks)-stripMarks:]
	}
	const w, h, step, wide, ground = 118, 24, 5.9, 4.0, 19.0
	s := open("strip", label, 0, w, h)
	top := highest(marks)
	for i, m := range marks {
		x := w - step*float64(len(marks)-i) + (step - wide)
		high := barHeight(m, top, 4, 15)
		s.rect(x, ground-high, wide, high, 1, string(m.Class), m.Title)
		if isMarked(m.Class) {
			s.rect(x, 21, wide, 2, 0, string(Fail), "")
		}
	}
	return s.close()
}

func highest(marks []Mark) (top float64) {
	for _, m := range marks {
		top = max(top, m.Value)
	}
	return top
}

// barHeight is how high a mark is between least and most.
func barHeight(m Mark, top, least, most float64) float64 {
	switch {
	case m.Class == Mute:
		return 2.5
	case m.Class == Missed, top <= 0:
		return most * 0.8
	}
	return least + (most-least)*m.Value/top
}

// Level is a horizontal line of a chart.
type Level struct {
	Value float64
	Text  string
	Warn  bool // drawn as a limit that runs are expected to keep
}

// Bars draws the durations of runs side by side, with levels across, highest first.
func Bars(label string, marks []Mark, levels []Level) string {
	const w, right, h = 768.0, 88.0, 108.0
	s := open("viz", label, -8, w, h+34)
	top := highest(marks)
	for _, l := range levels {
		if l.Value <= top*1.6 {
			top = max(top, l.Value)
		}
	}
	step := (w - right) / float64(max(len(marks), 36))
	for i, m := range marks {
		x := float64(i)*step + step*0.15
		if m.Note != "" {
			s.line(x-step*0.15, -6, x-step*0.15, h, "chg")
			anchor, at := "start", x+3
			if x > w/2 {
				anchor, at = "end", x-step*0.15-4
			}
			s.text(at, 2, "chgt", anchor, m.Note)
		}
		high := barHeight(m, top, 4, 92)
		end := s.link(m.Link, m.Title)
		s.rect(x, h-high, step*0.7, high, 1.5, string(m.Class), m.Title)
		end()
		if isMarked(m.Class) {
			s.rect(x, h+2, step*0.7, 2, 0, string(Fail), "")
		}
		if m.Tick != "" {
			s.text(x+step*0.35, h+20, "", "middle", m.Tick)
		}
	}
	last := -20.0
	for _, l := range levels {
		if top <= 0 || l.Value > top {
			continue
		}
		y := h - 4 - 88*l.Value/top
		class := "lvl"
		if l.Warn {
			class = "lvl warn"
		}
		s.line(0, y, w-right+4, y, class)
		at := max(y+4, last+13)
		s.text(w-right+10, at, "", "", l.Text)
		last = at
	}
	s.line(0, h, w-right, h, "ax")
	return s.close()
}

// Column is the counts of one step of time.
type Column struct {
	Parts []Part
	Title string
	Link  string
	Tick  string
}

// Part is a share of a column, from the ground up.
type Part struct {
	Class Class
	Value float64
}

func (c *Column) sum() (all float64) {
	for _, p := range c.Parts {
		all += p.Value
	}
	return all
}

// Columns draws counts over time. A bronze line before column now divides past from planned ones; -1
// draws none. The width is that of a wide screen, so that words have their size.
func Columns(label string, columns []Column, now int, nowText string, w, height float64) string {
	return columnsIn(label, columns, float64(now), nowText, 0, w, w, height)
}

// ColumnsOverLanes draws columns above lanes of the same time, so that moments align. now is the
// position of the bronze line, in columns; left and right are the margins of the axis.
func ColumnsOverLanes(label string, columns []Column, now float64, nowText string, left, right, height float64) string {
	return columnsIn(label, columns, now, nowText, left, LanesWide-right, LanesWide, height)
}

func columnsIn(label string, columns []Column, now float64, nowText string, left, right, w, height float64) string {
	s := open("viz", label, -14, w, height+36)
	top := 0.0
	for _, c := range columns {
		top = max(top, c.sum())
	}
	step := (right - left) / float64(max(len(columns), 1))
	for i, c := range columns {
		x, y := left+float64(i)*step, height
		end := func() {}
		if c.sum() > 0 {
			end = s.link(c.Link, c.Title)
		}
		for _, p := range c.Parts {
			if p.Value <= 0 || top <= 0 {
				continue
			}
			high := max((height-6)*p.Value/top, 1.5)
			s.rect(x+step*0.1, y-high, step*0.8, high, 0, string(p.Class), c.Title)
			y -= high
		}
		end()
		if c.Tick != "" {
			anchor := "middle"
			if i == 0 {
				anchor = "start"
			}
			s.text(x, height+16, "", anchor, c.Tick)
		}
	}
	s.line(left, height, right, height, "ax")
	if now >= 0 {
		x := left + now*step
		s.line(x, -10, x, height, "now")
		if now < float64(len(columns))*4/5 {
			s.text(x+5, -3, "nowt", "", nowText)
		} else {
			s.text(x-5, -3, "nowt", "end", nowText)
		}
	}
	return s.close()
}

// Band is a distribution in a step of time: half of it below Middle, nearly all below High.
type Band struct {
	Middle, High float64
	Title        string
	Tick         string
}

// Bands draws distributions over time: a bar from the middle up to the high, on a scale whose
// highest value has words. A step with nothing has a High of 0.
func Bands(label string, bands []Band, topText func(float64) string, w, height float64) string {
	s := open("viz", label, -14, w, height+36)
	top := 0.0
	for _, b := range bands {
		top = max(top, b.High)
	}
	step := w / float64(max(len(bands), 1))
	for i, b := range bands {
		x := float64(i) * step
		if b.High > 0 && top > 0 {
			high, middle := height-(height-6)*b.High/top, height-(height-6)*b.Middle/top
			s.rect(x+step*0.1, high, step*0.8, max(middle-high, 1), 0, "band", b.Title)
			s.rect(x+step*0.1, middle-1, step*0.8, 2.5, 0, string(Run), b.Title)
		}
		if b.Tick != "" {
			anchor := "middle"
			if i == 0 {
				anchor = "start"
			}
			s.text(x, height+16, "", anchor, b.Tick)
		}
	}
	if top > 0 {
		s.line(0, 6, w, 6, "lvl")
		s.text(w, 2, "", "end", topText(top))
	}
	s.line(0, height, w, height, "ax")
	return s.close()
}

// Span is a part of a lane, in the units of the chart.
type Span struct {
	From, To float64
	Class    Class
	Title    string
	Link     string
	Text     string // beside it
	// Waits is set if nothing ran: it is a thin line.
	Waits bool
	// Critical is set if the whole would have been shorter without it.
	Critical bool
	// Usual is where it usually ends at the latest, with words; 0 for nowhere.
	Usual     float64
	UsualText string
}

// Lane is a row of spans.
type Lane struct {
	Name   string
	Link   string
	Strong bool
	Spans  []Span
}

// Tick is a word on an axis.
type Tick struct {
	At   float64
	Text string
}

const (
	// LanesWide is the width of full-page lanes, in units of their style.
	LanesWide = 1080
	// LanesLeft is the left margin of the axis in a drawing of [LanesWide], for the names. A narrower
	// drawing has short names.
	LanesLeft = 190
	shortLeft = 100
	// LanesRight is its distance from the right edge.
	LanesRight = 8
)

// Lanes draws concurrent spans in a width: a row each, over a shared axis from 0 to length. now is the
// position of the bronze line, below 0 for none.
func Lanes(w float64, label string, lanes []Lane, length float64, ticks []Tick, now float64, nowText string) string {
	const row = 26.0
	left := float64(LanesLeft)
	if w < LanesWide {
		left = shortLeft
	}
	h := row * float64(max(len(lanes), 1))
	s := open("viz", label, -16, w, h+42)
	if length <= 0 {
		return s.close()
	}
	scale := (w - left - LanesRight) / length
	for _, t := range ticks {
		x := left + t.At*scale
		s.line(x, 0, x, h, "ax")
		s.text(x, h+17, "", "middle", t.Text)
	}
	for i, lane := range lanes {
		y := float64(i) * row
		name := lane.Name
		if runes := []rune(name); len(runes) > 29 {
			name = string(runes[:28]) + "…"
		}
		end := s.link(lane.Link, lane.Name)
		class := "lane"
		if lane.Strong {
			class = "lane strong"
		}
		s.text(0, y+17, class, "", name)
		end()
		s.line(left, y+row, w, y+row, "ax")
		for _, span := range lane.Spans {
			x := left + span.From*scale
			wide := max((span.To-span.From)*scale, 2.5)
			end := s.link(span.Link, span.Title)
			if span.Waits {
				s.rect(x, y+row/2-0.5, min(wide, w-x), 1, 0, string(span.Class), span.Title)
			} else {
				s.rect(x, y+6, min(wide, w-x), row-12, min(2, wide/2), string(span.Class), span.Title)
			}
			end()
			if span.Critical {
				s.rect(x, y+row-4, min(wide, w-x), 1.5, 0, "under", "")
			}
			if span.Text != "" {
				s.text(x+wide+7, y+17, "", "", span.Text)
			}
			if span.Usual > 0 {
				s.usual(left+span.Usual*scale, y, row, w, &span)
			}
		}
	}
	if now >= 0 && now <= length {
		x := left + now*scale
		s.line(x, -10, x, h, "now")
		s.text(x+5, -3, "nowt", "", nowText)
	}
	return s.close()
}

// usual marks where a span usually ends at the latest, with words in an empty place.
func (s *svg) usual(x, y, row, w float64, span *Span) {
	const room = 130 // of the words
	s.line(x, y+3, x, y+row-3, "usual")
	switch {
	case span.UsualText == "":
	case span.Usual >= span.To && x+room < w:
		s.text(x+6, y+17, "", "", span.UsualText)
	case x+room < w:
		s.text(x+6, y+17, "onbar", "", span.UsualText)
	default:
		s.text(x-6, y+17, "onbar", "end", span.UsualText)
	}
}

// Heat draws a table of counts as shades: rows of cells, a word before each row and ticks
// below the columns.
func Heat(label string, names []string, cells [][]float64, titles func(row, column int) string, ticks []Tick, now [2]int) string {
	return LinkedHeat(label, names, nil, cells, titles, func(int, int) bool { return false }, ticks, now)
}

// LinkedHeat is [Heat] with an address for each row, and a stroke in the cells that are marked.
func LinkedHeat(label string, names, links []string, cells [][]float64, titles func(row, column int) string, marked func(row, column int) bool, ticks []Tick, now [2]int) string {
	const w, left, row = 1080.0, 62.0, 24.0
	h := row * float64(len(cells))
	class := "viz heat"
	if len(links) > 0 {
		class = linkedHeat
	}
	s := open(class, label, 0, w, h+24)
	low, top := Scale(cells)
	for i, line := range cells {
		y := float64(i) * row
		if i < len(names) {
			end := func() {}
			if i < len(links) {
				end = s.link(links[i], names[i])
			}
			s.text(0, y+16, "lane", "", names[i])
			end()
		}
		step := (w - left) / float64(max(len(line), 1))
		for j, v := range line {
			s.rect(left+float64(j)*step, y+1, max(step-0.6, 0.5), row-2, 0, "h"+n(float64(shade(v, low, top))), titles(i, j))
			if marked(i, j) {
				s.rect(left+float64(j)*step, y+row-4, max(step-0.6, 0.5), 3, 0, string(Fail), "")
			}
		}
		if i == now[0] && now[1] >= 0 {
			x := left + float64(now[1])*step
			s.line(x, y, x, y+row, "now")
		}
	}
	for _, t := range ticks {
		s.text(left+t.At*(w-left), h+16, "", "", t.Text)
	}
	return s.close()
}

// shades are how many steps a heat map has above none.
const shades = 5

// Scale returns the ends of the scale of a heat map: its highest count, and the lowest, without the few that a
// span cuts. Jobs that run each minute lift all counts: the differences between them are what is drawn.
func Scale(cells [][]float64) (low, top float64) {
	const cut = 50 // one value in cut, the lowest ones, does not count
	var list []float64
	for _, line := range cells {
		for _, v := range line {
			if v > 0 {
				list = append(list, v)
			}
		}
	}
	if len(list) == 0 {
		return 0, 0
	}
	slices.Sort(list)
	return list[len(list)/cut], list[len(list)-1]
}

// shade returns the shade of a count: any count is visible, the lowest is the palest and the highest
// the darkest.
func shade(v, low, top float64) int {
	switch {
	case v <= 0 || top <= 0:
		return 0
	case low >= top:
		return shades
	}
	return min(1+int(max(v-low, 0)/(top-low)*(shades-0.01)), shades)
}

// Share draws a part of a whole as a thin bar.
func Share(part, whole float64, class Class) string {
	s := &svg{}
	s.WriteString(`<svg class="share" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">`)
	s.rect(0, 0, 100, 6, 0, "track", "")
	if whole > 0 && part > 0 {
		s.rect(0, 0, max(min(100*part/whole, 100), 1), 6, 0, string(class), "")
	}
	return s.close()
}
