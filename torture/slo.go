package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/torture/check"
)

// A sample is what the processes used at a time.
type sample struct {
	At     time.Time
	Memory int64 // resident bytes of the largest node
	Files  int   // open files of the node with most
	Store  int64 // bytes of the store's processes, what they share once
	Data   int64 // bytes of the files of nodes and store
}

// samples is how many are taken, however long a run is, for a curve without gaps in a picture of 1,200 points.
const samples = 600

// sampled watches the processes until a time.
func (s *site) sampled(end time.Time, length time.Duration, wait func(time.Duration) bool) (list []sample) {
	every := max(time.Second, length/samples)
	for time.Now().Before(end) {
		now := sample{At: time.Now(), Data: s.disk.used()}
		for _, n := range s.nodes {
			pid := n.pid()
			now.Memory = max(now.Memory, number(pid, "status", "VmRSS:"))
			if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
				now.Files = max(now.Files, len(open))
			}
		}
		if s.store != nil && s.store.process != nil {
			pid := s.store.process.pid()
			for _, p := range append(children(pid), pid) {
				now.Store += number(p, "smaps_rollup", "Pss:")
			}
		}
		list = append(list, now)
		if !wait(min(every, time.Until(end))) {
			break
		}
	}
	return list
}

// number reads a line in kB of a file of /proc; of a process that has ended it is 0.
func number(pid int, file, name string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == name {
			kilobytes, _ := strconv.ParseInt(words[1], 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}

func children(pid int) (list []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// recovery is how long after a fault lateness still counts as its effect: longer than the sessions and locks of the systems here last.
const recovery = 30 * time.Second

var spanColumns = []string{"from", "runs", "p50", "p99", "p99.9", "p99.99", "max", "max without faults", "missing", "late", "faults", "memory", "files", "store", "data"}

// spans are the rows of the table over time: an hour each, or a sixth of a short run.
func (p *part) spans() [][]string {
	length := p.End.Sub(p.Begin)
	each := time.Hour
	if length < 2*each {
		each = max(time.Second, length/6)
	}
	var rows [][]string
	for from := p.Begin; from.Before(p.End); from = from.Add(each) {
		rows = append(rows, p.span(short(from.Sub(p.Begin)), from, from.Add(each)))
	}
	return append(rows, p.span("all", p.Begin, p.End))
}

func (p *part) span(name string, from, to time.Time) []string {
	in := func(at time.Time) bool { return !at.Before(from) && at.Before(to) }
	var late []time.Duration
	calm := time.Duration(-1)
	for _, m := range p.Times {
		if !in(m.At) {
			continue
		}
		late = append(late, m.Late)
		if !p.disturbed(m.At) {
			calm = max(calm, m.Late)
		}
	}
	slices.Sort(late)
	row := []string{name, fmt.Sprint(len(late))}
	for _, share := range []float64{0.5, 0.99, 0.999, 0.9999, 1} {
		row = append(row, short(check.Percentile(late, share)))
	}
	without := "–"
	if calm >= 0 {
		without = short(calm)
	}
	counts := map[check.Kind]int{}
	for _, f := range p.Findings {
		if in(f.At) {
			counts[f.Kind]++
		}
	}
	faults := 0
	for _, f := range p.Faults {
		if f.made() && in(f.From) {
			faults++
		}
	}
	var most sample
	for _, s := range p.Samples {
		if in(s.At) {
			most = sample{Memory: max(most.Memory, s.Memory), Files: max(most.Files, s.Files), Store: max(most.Store, s.Store), Data: max(most.Data, s.Data)}
		}
	}
	return append(row, without, fmt.Sprint(counts[check.Missing]), fmt.Sprint(counts[check.Late]), fmt.Sprint(faults),
		megabytes(most.Memory), fmt.Sprint(most.Files), megabytes(most.Store), megabytes(most.Data))
}

// disturbed reports whether a target fell due during a fault or soon after it, or less than a fault lasts before it.
func (p *part) disturbed(at time.Time) bool {
	return slices.ContainsFunc(p.Faults, func(f fault) bool {
		return f.made() && at.After(f.From.Add(-p.Limits.Grace)) && at.Before(f.To.Add(recovery))
	})
}

func (f fault) made() bool { return f.Left == "" && !f.From.IsZero() }

func megabytes(n int64) string { return fmt.Sprintf("%d MB", (n+1<<19)>>20) }

// A curve is one line of the picture over time.
type curve struct {
	name, colour string
	at           []time.Time
	values       []float64 // from 0 to 1
}

// timeline is a picture of lateness, memory and files, with a band for each fault.
func (p *part) timeline() string {
	const top, panel, between = 24.0, 120.0, 26.0
	x := func(t time.Time) float64 {
		return pictureLeft + t.Sub(p.Begin).Seconds()/p.End.Sub(p.Begin).Seconds()*(pictureWidth-pictureLeft-10)
	}
	panels := [][]curve{p.lateness(), p.usage()}
	height := top + float64(len(panels))*(panel+between)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="11"><rect width="100%%" height="100%%" fill="#fff"/>`+"\n", pictureWidth, height)
	for _, f := range p.Faults {
		if f.made() {
			fmt.Fprintf(&b, `<rect x="%.1f" y="%g" width="%.1f" height="%.1f" fill="#fbd5d5"><title>%s</title></rect>`+"\n", x(f.From), top, max(1, x(f.To)-x(f.From)), height-top-between, f.Kind)
		}
	}
	for i, curves := range panels {
		bottom := top + float64(i)*(panel+between) + panel
		label := 4.0
		for _, c := range curves {
			fmt.Fprintf(&b, `<text x="%g" y="%.1f" fill="%s">%s</text>`, label, bottom+14, c.colour, c.name)
			label += 8 + 6*float64(len(c.name))
			var points []string
			for k, at := range c.at {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(at), bottom-c.values[k]*panel))
			}
			fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s"/>`+"\n", strings.Join(points, " "), c.colour)
		}
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="#888"/>`, pictureLeft, bottom, pictureWidth-10)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// lateness is the worst and the median of each of some spans, on a scale of powers of ten from 1 ms to 100 s.
func (p *part) lateness() []curve {
	const powers = 5
	each := max(time.Second, p.End.Sub(p.Begin)/(samples/2))
	spans := map[int][]time.Duration{}
	for _, m := range p.Times {
		spans[int(m.At.Sub(p.Begin)/each)] = append(spans[int(m.At.Sub(p.Begin)/each)], m.Late)
	}
	worst, half := curve{name: "worst lateness, 1 ms to 100 s", colour: "#d00000"}, curve{name: "median", colour: "#3a7d44"}
	for i := range int(p.End.Sub(p.Begin)/each) + 1 {
		late := spans[i]
		if len(late) == 0 {
			continue
		}
		slices.Sort(late)
		for c, share := range map[*curve]float64{&worst: 1, &half: 0.5} {
			milliseconds := max(1, float64(check.Percentile(late, share))/1e6)
			c.at = append(c.at, p.Begin.Add(time.Duration(i)*each))
			c.values = append(c.values, min(1, math.Log10(milliseconds)/powers))
		}
	}
	return []curve{worst, half}
}

// usage is each figure as a share of its highest value.
func (p *part) usage() []curve {
	var curves []curve
	for _, u := range []struct {
		name, colour string
		of           func(sample) int64
		show         func(int64) string
	}{
		{"memory of a node", "#0077b6", func(s sample) int64 { return s.Memory }, megabytes},
		{"open files", "#8e24aa", func(s sample) int64 { return int64(s.Files) }, func(n int64) string { return fmt.Sprint(n) }},
		{"memory of the store", "#f08c00", func(s sample) int64 { return s.Store }, megabytes},
		{"data", "#6d4c41", func(s sample) int64 { return s.Data }, megabytes},
	} {
		most := int64(0)
		for _, s := range p.Samples {
			most = max(most, u.of(s))
		}
		if most == 0 {
			continue
		}
		c := curve{name: fmt.Sprintf("%s, at most %s", u.name, u.show(most)), colour: u.colour}
		for _, s := range p.Samples {
			c.at, c.values = append(c.at, s.At), append(c.values, float64(u.of(s))/float64(most))
		}
		curves = append(curves, c)
	}
	return curves
}
