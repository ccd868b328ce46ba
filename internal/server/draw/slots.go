package draw

import (
	"fmt"
	"html"
)

const (
	// LaneNames is the left margin of the axis of counted lanes in a drawing of [LanesWide], for their
	// names as text of the page.
	LaneNames = 250
	// LaneNumbers is the right margin of that axis.
	LaneNumbers = 70
	slotHeight  = 12
)

// Slot is a part of a lane over some columns.
type Slot struct {
	From, To float64
	Class    Class
	High     float64 // share of the lane; 0 is all of it
	Title    string
	Link     string
}

// Slots draws the columns of a lane. It is stretched to the width of its place, so that it has no
// text.
func Slots(label string, columns float64, slots []Slot) string {
	s := &svg{}
	fmt.Fprintf(s, `<svg viewBox="0 0 %s %d" preserveAspectRatio="none" role="group" aria-label="%s">`, n(columns), slotHeight, html.EscapeString(label))
	for _, slot := range slots {
		high := slot.High * slotHeight
		if high <= 0 {
			high = slotHeight
		}
		end := s.link(slot.Link, slot.Title)
		s.rect(slot.From, slotHeight-high, slot.To-slot.From, high, 0, string(slot.Class), slot.Title)
		end()
	}
	return s.close()
}

// Axis draws the words above lanes in the width of its place, and the bronze line unless now is
// below 0.
func Axis(ticks []Tick, length, now float64, nowText string) string {
	s := &svg{}
	s.WriteString(`<svg class="axis" aria-hidden="true">`)
	// The bronze line's word needs room: on a narrow page it is a sixth as wide as the lanes.
	anchor, dx, from, to := "start", 5, now-length/10, now+length/6
	if now > length*4/5 {
		anchor, dx, from, to = "end", -5, now-length/4, now+length/50
	}
	for _, t := range ticks {
		if now >= 0 && t.At > from && t.At < to {
			continue
		}
		at := percent(t.At, length)
		fmt.Fprintf(s, `<line x1="%[1]s" x2="%[1]s" y1="0" y2="100%%" class="ax"/><text x="%[1]s" y="14" dx="4">%[2]s</text>`, at, html.EscapeString(t.Text))
	}
	if now >= 0 && now <= length {
		fmt.Fprintf(s, `<line x1="%[1]s" x2="%[1]s" y1="0" y2="100%%" class="now"/><text x="%[1]s" y="14" dx="%[2]d" class="nowt" text-anchor="%[3]s">%[4]s</text>`, percent(now, length), dx, anchor, html.EscapeString(nowText))
	}
	return s.close()
}

func percent(part, whole float64) string { return n(100*part/max(whole, 1)) + "%" }
