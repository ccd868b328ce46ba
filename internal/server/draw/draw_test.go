package draw

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// marks are one mark of each style, with a text that must be escaped.
func marks() (list []Mark) {
	for i, class := range []Class{OK, Fail, Time, Run, Lost, Mute, Missed} {
		list = append(list, Mark{Class: class, Value: float64(i), Title: `<b>&"`, Link: "/runs/1?a=1&b=2", Tick: "<", Note: "v2"})
	}
	return list
}

// pictures are one picture of each kind.
func pictures() map[string]string {
	return map[string]string{
		"strip":   Strip(`<i>`, marks()),
		"bars":    Bars(`"`, marks(), []Level{{Value: 5, Text: "p95"}, {Value: 4.9, Text: "p50"}, {Value: 100, Text: "far", Warn: true}}),
		"columns": Columns("c", []Column{{Parts: []Part{{OK, 3}, {Fail, 0}}, Link: "/a", Title: "3"}, {Link: "/nothing", Title: "none"}}, 1, "now", 768, 90),
		"lanes":   Lanes(LanesWide, "l", []Lane{{Name: "a<b", Link: "/jobs/a", Spans: []Span{{From: 1, To: 0.5, Class: OK, Link: "/runs/1", Title: "run", Text: "t"}}}}, 10, []Tick{{At: 5, Text: "5"}}, 5, "now"),
		"empty":   Lanes(LanesWide, "l", nil, 0, nil, -1, ""),
		"heat":    Heat("h", []string{"a"}, [][]float64{{0, 1, 5}}, func(int, int) string { return "<" }, []Tick{{At: 0.5, Text: "12"}}, [2]int{0, 1}),
		"slots":   Slots("s", 3, []Slot{{From: 1, To: 2, Class: Fail, Title: "<1>", Link: "/x"}, {From: 2, To: 3, Class: Next, High: 0.2}}),
		"axis":    Axis([]Tick{{1, "<0>"}, {9, "1"}}, 10, 5, "now"),
		"over":    ColumnsOverLanes("o", []Column{{Parts: []Part{{Next, 1}}, Title: "<1>"}}, 0.5, "now", LanesLeft, LanesRight, 90),
		"days":    LinkedHeat("d", []string{"<Mon>"}, []string{"/t?a&b"}, [][]float64{{1}}, func(int, int) string { return "&" }, func(int, int) bool { return true }, nil, [2]int{-1, -1}),
		"share":   Share(3, 8, Run),
		"graph":   Graph("g", []Node{{Name: "<b>", Text: "&", Title: `"`, Icon: "/i?a&b", Link: "/r?a=1&b=2", Several: true}, {Layer: 2, Name: "任务的名字很长很长很长很长", Class: "ok"}}, []Edge{{From: 0, To: 1, Critical: true, Text: "<"}}),
		"sketch":  Sketch("<", []Dot{{Class: OK}, {Layer: 1, Class: Fail}}, []Edge{{From: 0, To: 1}}),
	}
}

func TestPicturesAreWellFormedAndTheirTextsEscaped(t *testing.T) {
	for name, picture := range pictures() {
		d := xml.NewDecoder(strings.NewReader(picture))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Errorf("%s is not well-formed: %v\n%s", name, err, picture)
				break
			}
			element, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			switch element.Name.Local {
			case "svg", "rect", "line", "text", "title", "a", "g", "path", "use", "circle":
			default:
				t.Errorf("%s has the element %s", name, element.Name.Local)
			}
			for _, a := range element.Attr {
				if a.Name.Local == "style" || strings.HasPrefix(a.Name.Local, "on") {
					t.Errorf("%s has the attribute %s", name, a.Name.Local)
				}
				if (a.Name.Local == "width" || a.Name.Local == "height") && strings.HasPrefix(a.Value, "-") {
					t.Errorf("%s has the %s %s", name, a.Name.Local, a.Value)
				}
			}
		}
	}
}

func TestMarksDifferWithoutColour(t *testing.T) {
	for _, c := range []struct {
		class Class
		want  int // rectangles: the mark, and a stroke below it
	}{{OK, 1}, {Mute, 1}, {Run, 1}, {Fail, 2}, {Time, 2}, {Lost, 2}, {Missed, 2}} {
		if got := strings.Count(Strip("s", []Mark{{Class: c.class, Value: 1}}), "<rect"); got != c.want {
			t.Errorf("a mark of %s has %d rectangles, want %d", c.class, got, c.want)
		}
	}
}

func TestAStripShowsTheLatestRuns(t *testing.T) {
	var list []Mark
	for range 30 {
		list = append(list, Mark{Class: OK, Title: "old"})
	}
	list = append(list, Mark{Class: OK, Title: "the last"})
	picture := Strip("s", list)
	if strings.Count(picture, "<rect") != stripMarks || !strings.Contains(picture, "the last") {
		t.Errorf("the strip is %s", picture)
	}
	if Strip("s", nil) != "" {
		t.Error("a job that never ran has a strip")
	}
}

func TestOnlyColumnsWithSomethingInThemAreLinks(t *testing.T) {
	if picture := pictures()["columns"]; !strings.Contains(picture, `href="/a"`) || strings.Contains(picture, "/nothing") {
		t.Errorf("the columns are %s", picture)
	}
}

func TestAnyCountIsSeenAndTheHighestIsTheDarkest(t *testing.T) {
	for _, c := range []struct {
		v, low, top float64
		want        int
	}{{0, 0, 9, 0}, {0.1, 0, 1000, 1}, {9, 0, 9, shades}, {5, 0, 0, 0}, {4.5, 0, 9, 3}, {715, 715, 717, 1}, {716, 715, 717, 3}, {717, 715, 717, shades}, {300, 715, 717, 1}, {1, 1, 1, shades}} {
		if got := shade(c.v, c.low, c.top); got != c.want {
			t.Errorf("%v of %v to %v has shade %d, want %d", c.v, c.low, c.top, got, c.want)
		}
	}
	// A week of jobs that run each minute, whose first quarter hour began before the page.
	week := make([][]float64, 7)
	for i := range week {
		week[i] = slices.Repeat([]float64{715, 716, 721, 715}, 24)
	}
	week[0][0] = 301
	if low, top := Scale(week); low != 715 || top != 721 {
		t.Errorf("the scale of a week is %v to %v, want 715 to 721", low, top)
	}
}

func TestColumnsStandOverTheLanesOfTheSameTime(t *testing.T) {
	now := regexp.MustCompile(`<line x1="([0-9.]+)" [^>]*class="now"`)
	columns := ColumnsOverLanes("", make([]Column, 10), 2.5, "now", LanesLeft, LanesRight, 90)
	lanes := Lanes(LanesWide, "", []Lane{{Name: "a"}}, 1000, nil, 250, "now")
	above, below := now.FindStringSubmatch(columns), now.FindStringSubmatch(lanes)
	if above == nil || below == nil || above[1] != below[1] {
		t.Errorf("now is at %q in the columns and at %q in the lanes", above, below)
	}
}
