package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/torture/check"
)

// A report is the verdict on several systems, which had the same plan.
type report struct {
	parts []part
}

type part struct {
	*evidence
	*check.Result
}

func (r *report) add(e *evidence, result *check.Result) { r.parts = append(r.parts, part{e, result}) }

var columns = []string{"system", "version", "nodes", "targets", "met", "excused", "missing", "doubled", "early", "late", "overlapping", "unasked", "unexplained", "p50", "p99", "worst", "silence"}

func (p *part) cells() []string {
	count := func(kind check.Kind) string { return fmt.Sprint(p.Count(kind)) }
	missing := count(check.Missing)
	if dead := p.missingWithoutNode(); dead > 0 {
		missing += fmt.Sprintf(" (%d)", dead)
	}
	overlapping := count(check.Overlapping)
	if !p.NoOverlap {
		overlapping = "–"
	}
	return []string{
		p.System, p.Version, fmt.Sprint(p.Nodes), fmt.Sprint(p.Targets), fmt.Sprint(p.Met), fmt.Sprint(p.Excused), missing, count(check.Doubled), count(check.Early), count(check.Late), overlapping, count(check.Unasked), count(check.Unexplained),
		short(check.Percentile(p.Lateness, 0.5)), short(check.Percentile(p.Lateness, 0.99)), short(check.Percentile(p.Lateness, 1)), short(p.Silence),
	}
}

// missingWithoutNode counts the missing targets that fell due while no node was running.
func (p *part) missingWithoutNode() int {
	n := 0
	for _, f := range p.Findings {
		if f.Kind == check.Missing && slices.ContainsFunc(p.Faults, func(fault fault) bool {
			dead := fault.Kind == faultAll || p.Nodes == 1 && (fault.Kind == faultKill || fault.Kind == faultRestart || fault.Kind == faultRolling)
			return dead && !f.At.Before(fault.From) && f.At.Before(fault.To)
		}) {
			n++
		}
	}
	return n
}

func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// table is the one table of the report, in Markdown.
func (r *report) table() string {
	var rows [][]string
	for _, p := range r.parts {
		rows = append(rows, p.cells())
	}
	return markdown(columns, rows)
}

func markdown(columns []string, rows [][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// write makes report.md and report.html in a folder, with a picture of each system.
func (r *report) write(dir string) error {
	var md, page strings.Builder
	fmt.Fprintf(&md, "# crontorture\n\n%s\n\n%s\n%s\n", r.head(), r.table(), legend)
	fmt.Fprintf(&page, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>crontorture</title>\n<style>%s</style>\n<h1>crontorture</h1>\n<p>%s</p>\n<table><tr>", style, html.EscapeString(r.head()))
	for _, c := range columns {
		fmt.Fprintf(&page, "<th>%s</th>", c)
	}
	page.WriteString("</tr>\n")
	for _, p := range r.parts {
		page.WriteString("<tr>")
		for _, c := range p.cells() {
			fmt.Fprintf(&page, "<td>%s</td>", html.EscapeString(c))
		}
		page.WriteString("</tr>\n")
	}
	fmt.Fprintf(&page, "</table>\n<p>%s</p>\n", html.EscapeString(legend))
	for _, p := range r.parts {
		picture := p.svg()
		if err := os.WriteFile(filepath.Join(dir, p.System+".svg"), []byte(picture), 0o644); err != nil {
			return err
		}
		facts := p.facts()
		fmt.Fprintf(&md, "\n## %s\n\n![%s: each run a tick, faults as bands](%s.svg)\n\n- %s\n\n", p.System, p.System, p.System, strings.Join(facts, "\n- "))
		fmt.Fprintf(&page, "<h2>%s</h2>\n%s\n<ul>\n", html.EscapeString(p.System), picture)
		for _, f := range facts {
			fmt.Fprintf(&page, "<li>%s</li>\n", html.EscapeString(f))
		}
		page.WriteString("</ul>\n")
		over := p.timeline()
		if err := os.WriteFile(filepath.Join(dir, p.System+"-time.svg"), []byte(over), 0o644); err != nil {
			return err
		}
		spans := p.spans()
		fmt.Fprintf(&md, "![%s over time](%s-time.svg)\n\n%s", p.System, p.System, markdown(spanColumns, spans))
		fmt.Fprintf(&page, "%s\n<table><tr><th>%s</th></tr>\n", over, strings.Join(spanColumns, "</th><th>"))
		for _, row := range spans {
			fmt.Fprintf(&page, "<tr><td>%s</td></tr>\n", strings.Join(row, "</td><td>"))
		}
		page.WriteString("</table>\n")
	}
	page.WriteString("</html>\n")
	if err := os.WriteFile(filepath.Join(dir, "report.md"), []byte(md.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "report.html"), []byte(page.String()), 0o644)
}

const (
	legend = "Targets are the instants at which jobs fell due; met are those with a run, and excused those that fell into a run of a job that must not overlap; of the missing, the number in parentheses fell due while no node was running. Times are how late the runs started after their targets, and silence is the longest time " +
		"without a run of a job that is due at each shortest interval. In the tables over time, runs in a fault or less than 30 s after it do not count as without faults, and memory, files and data are the highest seen. A dash stands where the system promises nothing. Systems that do not tell their commands the scheduled time have the benefit of the doubt: " +
		"a run belongs to the target that makes the fewest mistakes."
	style = "body{font:14px sans-serif;margin:2em;max-width:1300px}table{border-collapse:collapse;font-size:12px}td,th{border:1px solid #bbb;padding:3px 7px;text-align:right}td:first-child,td:nth-child(2){text-align:left}svg{width:100%;height:auto}"
	// Of findings, the report names the first ones of each kind; the evidence has them all.
	named = 3
)

func (r *report) head() string {
	p := r.parts[0]
	return fmt.Sprintf("%s, %s of faults with seed %d, %d processors, %s. A run that starts more than %s after its target is late.",
		p.Begin.UTC().Format("2 January 2006"), p.End.Sub(p.Begin), p.Seed, runtime.NumCPU(), firstLine(runtime.GOOS+"/"+runtime.GOARCH), p.Limits.Grace)
}

// facts are what a reader needs to judge the figures of one system.
func (p *part) facts() []string {
	facts := []string{"version: " + p.Version, "settings: " + p.Settings, "promise: " + p.Promises}
	if p.StoreVersion != "" {
		facts = append(facts, "store: "+p.StoreVersion)
	}
	if !p.Known {
		facts = append(facts, "its commands do not know their scheduled time")
	}
	for _, o := range p.Omitted {
		facts = append(facts, "left out: "+o)
	}
	facts = append(facts, p.Notes...)
	var faults []string
	for _, f := range p.Faults {
		text := fmt.Sprintf("%s at %s for %s", f.Kind, short(f.From.Sub(p.Begin)), short(f.To.Sub(f.From)))
		if f.Step != 0 {
			text += fmt.Sprintf(" (%+.0fs)", f.Step.Seconds())
		}
		if f.Left != "" {
			text = f.Kind + " " + f.Left
		}
		faults = append(faults, text)
	}
	facts = append(facts, "faults: "+strings.Join(faults, ", "))
	for _, kind := range check.Kinds {
		n := 0
		for _, f := range p.Findings {
			if f.Kind != kind {
				continue
			}
			if n++; n <= named {
				facts = append(facts, fmt.Sprintf("%s: %s at %s: %s", kind, f.Job, short(f.At.Sub(p.Begin)), f.Text))
			}
		}
		if n > named {
			facts = append(facts, fmt.Sprintf("%s: %d more", kind, n-named))
		}
	}
	return facts
}

var colours = map[check.Kind]string{
	"": "#3a7d44", check.Missing: "#d00000", check.Doubled: "#8e24aa", check.Early: "#0077b6", check.Late: "#f08c00",
	check.Overlapping: "#6d4c41", check.Unasked: "#ff4da6", check.Unexplained: "#000",
}

const (
	pictureWidth = 1200.0
	pictureLeft  = 110.0
	rowHeight    = 26.0
	pictureTop   = 24.0
	// Longer pictures have the mistakes alone: ticks closer than a point are a bar.
	ticksUpTo = time.Hour
)

// svg is a row for each job with a tick for each run and each missing one, and a band for each fault.
func (p *part) svg() string {
	scale := (pictureWidth - pictureLeft - 10) / (p.End.Sub(p.Begin).Seconds() + tail.Seconds())
	x := func(t time.Time) float64 { return pictureLeft + t.Sub(p.Begin).Seconds()*scale }
	rows := map[string]float64{}
	var b strings.Builder
	height := pictureTop + rowHeight*float64(len(p.Jobs)) + 24
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="11">`+"\n", pictureWidth, height)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="#fff"/>`+"\n", pictureWidth, height)
	for _, f := range p.Faults {
		if !f.made() {
			continue
		}
		fmt.Fprintf(&b, `<rect x="%.1f" y="14" width="%.1f" height="%.1f" fill="#fbd5d5"/><text x="%.1f" y="11" fill="#900">%s</text>`+"\n",
			x(f.From), max(2, x(f.To)-x(f.From)), height-34, x(f.From), f.Kind)
	}
	for i, j := range p.Jobs {
		rows[j.Name] = pictureTop + rowHeight*float64(i)
		fmt.Fprintf(&b, `<text x="4" y="%.1f">%s</text>`+"\n", rows[j.Name]+14, html.EscapeString(j.Name))
	}
	for _, m := range p.Marks {
		if m.Kind == "" && p.End.Sub(p.Begin) > ticksUpTo {
			continue
		}
		y, known := rows[m.Job]
		if at := x(m.At); known && at >= pictureLeft && at <= pictureWidth {
			fmt.Fprintf(&b, `<path d="M%.1f %.1fv%g" stroke="%s" stroke-width="1.5"/>`+"\n", at, y, rowHeight-8, colours[m.Kind])
		}
	}
	fmt.Fprintf(&b, `<text x="%g" y="%.1f"><tspan fill="%s">on time</tspan>`, pictureLeft, height-6, colours[""])
	for _, kind := range check.Kinds {
		fmt.Fprintf(&b, ` <tspan fill="%s" dx="12">%s</tspan>`, colours[kind], kind)
	}
	b.WriteString("</text>\n</svg>\n")
	return b.String()
}
