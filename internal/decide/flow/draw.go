package flow

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

// Drawing is an output format for the graph of a flow.
type Drawing string

// The forms of drawings.
const (
	DrawText    Drawing = "text"
	DrawMermaid Drawing = "mermaid"
	DrawDOT     Drawing = "dot"
)

// Drawings returns the forms of drawings.
func Drawings() []string { return []string{string(DrawText), string(DrawMermaid), string(DrawDOT)} }

// Draw writes the graph of a valid flow, and nothing for other jobs.
func Draw(j *job.Job, as Drawing) string {
	var b strings.Builder
	name, f := j.Name, j.Run.Flow
	if f == nil {
		return ""
	}
	switch as {
	case DrawMermaid:
		drawMermaid(&b, name, f)
	case DrawDOT:
		drawDOT(&b, name, f)
	default:
		drawText(&b, name, f)
	}
	return b.String()
}

// Layers returns the layer of each step: 0 if it starts at once, or one more than the highest of
// its needs. Steps of finally are in layers after all others.
func (g *Graph) Layers() []int {
	layers := make([]int, len(g.Steps))
	last := 0
	for _, finally := range []bool{false, true} {
		base := 0
		if finally {
			base = last + 1
		}
		// Each round raises steps above their needs; circles do not exist.
		for moved := true; moved; {
			moved = false
			for i := range g.Steps {
				s := &g.Steps[i]
				if s.Finally != finally {
					continue
				}
				layer := base
				for _, need := range s.Needs {
					layer = max(layer, layers[need]+1)
				}
				if layer != layers[i] {
					layers[i], moved = layer, true
				}
				last = max(last, layer)
			}
		}
	}
	return layers
}

// layered returns the steps by layer, in the order of the document.
func layered(f *job.Flow) (layers [][]*job.Step) {
	all := f.All()
	for i, layer := range NewGraph(f).Layers() {
		for len(layers) <= layer {
			layers = append(layers, nil)
		}
		layers[layer] = append(layers[layer], all[i])
	}
	return layers
}

func drawText(b *strings.Builder, name string, f *job.Flow) {
	b.WriteString(name + "\n")
	width := 0
	for _, s := range f.All() {
		width = max(width, len(s.Name))
	}
	finally := map[*job.Step]bool{}
	for i, s := range f.All() {
		finally[s] = f.IsFinally(i)
	}
	for number, layer := range layered(f) {
		for i, s := range layer {
			place := ""
			switch {
			case i > 0:
			case finally[s]:
				place = "last"
			default:
				place = strconv.Itoa(number + 1)
			}
			line := fmt.Sprintf("%5s  %-*s  %-9s %s", place, width, s.Name, workOf(s), strings.Join(about(s), ", "))
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
}

// workOf returns a word for the work of a step.
func workOf(s *job.Step) string {
	switch w := s.Wait; {
	case w == nil:
		return string(s.Run.Work())
	case w.Approval != "":
		return "approval"
	case w.Signal != "":
		return "signal"
	default:
		return "wait"
	}
}

// about describes when and how often a step starts.
func about(s *job.Step) (words []string) {
	if len(s.Needs) > 0 {
		after := "after " + strings.Join(s.Needs, ", ")
		if when := cmp.Or(s.When, job.OnSucceeded); when != job.OnSucceeded {
			after += " " + whenInWords(when)
		}
		words = append(words, after)
	}
	if s.If != "" {
		words = append(words, "if "+s.If)
	}
	if len(s.ForEach) > 0 {
		words = append(words, "for each of "+strings.Join(s.ForEach, ", "))
	}
	if s.AllowFailure {
		words = append(words, "may fail")
	}
	return words
}

func whenInWords(when job.UpstreamOn) string {
	if when == job.OnFailed {
		return "failed"
	}
	return "ended"
}

func drawMermaid(b *strings.Builder, name string, f *job.Flow) {
	fmt.Fprintf(b, "---\ntitle: %s\n---\nflowchart TD\n", name)
	for _, s := range f.All() {
		open, end := "[", "]"
		switch {
		case s.Wait != nil:
			open, end = "([", "])"
		case len(s.ForEach) > 0:
			open, end = "[[", "]]"
		}
		// The prefix keeps keywords of Mermaid, such as end, from being names.
		fmt.Fprintf(b, "    s_%s%s\"%s<br><small>%s</small>\"%s\n", s.Name, open, s.Name, workOf(s), end)
	}
	Edges(f, func(from, to, label string) {
		if label != "" {
			label = "|" + label + "|"
		}
		fmt.Fprintf(b, "    s_%s -->%s s_%s\n", from, label, to)
	})
}

func drawDOT(b *strings.Builder, name string, f *job.Flow) {
	fmt.Fprintf(b, "digraph %s {\n    rankdir=TB;\n    node [shape=box, style=rounded];\n", strconv.Quote(name))
	for _, s := range f.All() {
		shape := ""
		switch {
		case s.Wait != nil:
			shape = ", shape=ellipse"
		case len(s.ForEach) > 0:
			shape = ", peripheries=2"
		}
		fmt.Fprintf(b, "    %s [label=\"%s\\n%s\"%s];\n", strconv.Quote(s.Name), s.Name, workOf(s), shape)
	}
	Edges(f, func(from, to, label string) {
		if label != "" {
			label = fmt.Sprintf(" [label=%s]", strconv.Quote(label))
		}
		fmt.Fprintf(b, "    %s -> %s%s;\n", strconv.Quote(from), strconv.Quote(to), label)
	})
	b.WriteString("}\n")
}

// Edges calls draw for each dependency, with a description of the required end. Steps of
// finally come after those that no other step needs.
func Edges(f *job.Flow, draw func(from, to, label string)) {
	needed := map[string]bool{}
	for i := range f.Steps {
		for _, need := range f.Steps[i].Needs {
			needed[need] = true
		}
	}
	for i, s := range f.All() {
		label := ""
		if when := cmp.Or(s.When, job.OnSucceeded); when != job.OnSucceeded {
			label = whenInWords(when)
		}
		for _, need := range s.Needs {
			draw(need, s.Name, label)
		}
		if f.IsFinally(i) && len(s.Needs) == 0 {
			for j := range f.Steps {
				if name := f.Steps[j].Name; !needed[name] {
					draw(name, s.Name, "finally")
				}
			}
		}
	}
}
