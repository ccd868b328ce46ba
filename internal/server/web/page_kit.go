package web

import (
	"html/template"

	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/job"
)

// kitView shows every component in every state.
type kitView struct {
	*Layout
	Outcomes, States []State
	Strip, Bars      template.HTML
	Columns, Lanes   template.HTML
	Heat, Share      template.HTML
	Output           []outputLine
	Choices          []tab
	Diff             []diffLine
	Phases           []phase
	Month            []calendarDay
	Graph, Sketch    template.HTML
	Loading          [][]int // how wide the lines are, in percent
	Job              dueRow
}

func (s *site) kit(p *page) error {
	v := kitView{Layout: p.layout("kit.title", "kit")}
	var marks []draw.Mark
	for i, o := range job.Outcome("").Values() {
		v.Outcomes = append(v.Outcomes, p.outcome(job.Outcome(o)))
		marks = append(marks, draw.Mark{Class: outcomeClasses[job.Outcome(o)], Value: float64(8 - i), Title: p.T("outcome." + o)}, draw.Mark{Class: draw.OK, Value: float64(3 + i%4)})
	}
	for _, state := range []job.RunState{job.StateReady, job.StateWaiting, job.StateRunning} {
		look := stateLooks[state]
		look.Text = p.T("state." + string(state))
		v.States = append(v.States, look)
	}
	marks = append(marks, draw.Mark{Class: draw.Run, Value: 6})
	v.Strip = picture(draw.Strip(p.T("kit.strip"), marks))
	v.Bars = picture(draw.Bars(p.T("kit.bars"), marks, []draw.Level{{Value: 8, Text: "8 s", Warn: true}, {Value: 6, Text: "p95 6 s"}, {Value: 4, Text: "p50 4 s"}}))
	var columns []draw.Column
	var cells [][]float64
	for i := range 48 {
		parts := []draw.Part{{Class: draw.Fail, Value: float64(i % 7 / 5)}, {Class: draw.OK, Value: float64(5 + i*7%11)}}
		if i >= 30 {
			parts = []draw.Part{{Class: draw.Next, Value: float64(5 + i*5%9)}}
		}
		columns = append(columns, draw.Column{Parts: parts})
	}
	for i := range 3 {
		var line []float64
		for j := range 96 {
			line = append(line, float64((i*37+j*j)%29))
		}
		cells = append(cells, line)
	}
	v.Columns = picture(draw.Columns(p.T("kit.columns"), columns, 30, p.T("now"), whole, 90))
	v.Heat = picture(draw.LinkedHeat(p.T("kit.heat"), []string{"1", "2", "3"}, nil, cells, func(int, int) string { return "" }, func(i, j int) bool { return i == 1 && j/4 == 3 }, nil, [2]int{1, 40}))
	v.Lanes = picture(draw.Lanes(half, p.T("kit.lanes"), []draw.Lane{
		{Name: "data/one", Spans: []draw.Span{{From: 1, To: 9, Class: draw.OK}, {From: 12, To: 13, Class: draw.Fail}}},
		{Name: "data/two", Spans: []draw.Span{{From: 3, To: 15, Class: draw.Run}, {From: 18, To: 22, Class: draw.Plan}}},
	}, 24, []draw.Tick{{At: 6, Text: "06:00"}, {At: 12, Text: "12:00"}}, 15, p.T("now")))
	v.Share = picture(draw.Share(3, 8, draw.Run))
	v.Output = parseOutput([]byte("2026-11-23T09:40:10.000Z | plain \x1b[32mgreen\x1b[0m \x1b[1;31mbold red\x1b[0m \x1b[33myellow\x1b[34m blue\x1b[35m magenta\x1b[90m grey\x1b[0m\n2026-11-23T09:40:10.100Z ! on stderr\n"), p.zone)
	v.Job.Namespace, v.Job.Name, v.Job.Address = "shop", "price-import", "/ui/kit"
	v.Choices = []tab{{Name: p.T("definition.diff"), Address: "/ui/kit", Current: true}, {Name: p.T("definition.whole"), Address: "/ui/kit"}}
	v.Diff = diffLines("@@ -7,3 +7,3 @@\n run:\n-  shell: ./import.sh\n+  shell: ./import.sh --strict\n   dir: /srv/shop\n")
	v.Phases = []phase{{Name: p.T("run.due"), When: "09:40:00"}, {Class: "now part", Name: p.T("state.running"), When: "2 s"}, {Class: "todo", Name: p.T("run.ends")}}
	v.Month = []calendarDay{
		{Day: 29, Class: "out"}, {Day: 30, Class: "off"}, {Day: 1, Class: "on", Text: "02:30"}, {Day: 2, Class: "on today", Text: "02:30"},
		{Day: 3, Class: "on dst", Text: "03:00", Change: p.T("schedule.clock", "zone", "Europe/Berlin", "at", "02:00", "to", "03:00")}, {Day: 4}, {Day: 5},
	}
	v.Loading = [][]int{{60, 90, 50}, {45, 100, 50}, {70, 70, 50}, {55, 95, 50}}
	nodes := []draw.Node{
		{Name: "extract", Class: "ok", Icon: p.icon("ok"), IconClass: "ok"}, {Name: "check", Layer: 1, Class: "fail", Icon: p.icon("fail"), IconClass: "fail"},
		{Name: "load", Layer: 1, Class: "run", Icon: p.icon("run"), IconClass: "run", Several: true}, {Name: "approve", Layer: 2, Class: "run", Icon: p.icon("user"), IconClass: "run", Selected: true},
		{Name: "publish", Layer: 3, Class: "todo", Icon: p.icon("ready"), IconClass: "mute"}, {Name: "tell", Layer: 3, Icon: p.icon("term"), IconClass: "faint"},
	}
	var dots []draw.Dot
	for i := range nodes {
		class, look := draw.Plan, map[string]string{"ok": stepSucceeded, "fail": stepFailed, "run": stepOpen, "todo": stepPending, "": stepPending}[nodes[i].Class]
		nodes[i].Text, nodes[i].Title = p.T("step."+look), p.T("step."+look)
		if look != stepPending {
			_, class = graphClass(stepLooks[look])
		}
		dots = append(dots, draw.Dot{Layer: nodes[i].Layer, Class: class})
	}
	edges := []draw.Edge{{From: 0, To: 1}, {From: 0, To: 2, Critical: true}, {From: 1, To: 3}, {From: 2, To: 3, Critical: true}, {From: 3, To: 4}, {From: 3, To: 5}}
	v.Graph, v.Sketch = picture(draw.Graph(p.T("flow.graph"), nodes, edges)), picture(draw.Sketch(p.T("flow.graph"), dots, edges))
	return p.show("kit", v)
}
