package web

import (
	"cmp"
	"context"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// overviewView answers what needs a person.
type overviewView struct {
	*Layout
	Lead     string
	Shared   string // how many errors explain how many failing jobs
	Now      string
	Needs    []need
	Snoozed  []need
	Due      []dueRow
	DueMore  int
	DueOf    string // how many of how many are listed
	Nodes    []nodeShare
	Running  int
	Changes  []change
	Chart    template.HTML
	ChartOf  string
	Outcomes []outcomeShare
	Ended    string
	// NoChannel says that failures reach no person.
	NoChannel bool
	Rest      int   // what the wall has no room for
	Whose     []tab // all problems, or only the taken ones of the reader, or those that are not taken
	Filtered  bool
}

// need is something that a person should look at.
type need struct {
	State           State
	Namespace, Name string
	Address         string
	About           string // the job, node or channels, in words
	Text, Whole     string // the cause; with all that is known
	Times           string // how often, or what else is known
	Since           When
	Strip           template.HTML
	Open            string // the page that shows most of it
	Retry           string // the run that a retry repeats
	IsJob           bool
	Asks, Pause     bool // it waits for a person; the job can be paused
	Resume          bool
	// What people have said about it.
	Kind, Subject   string
	TakenBy, Note   string
	NoteBy, Snoozed string
	IsMine          bool
	Until           []string // the ends that a snooze may have
	Version         int64    // with which its failures began
	Change          string   // the page that shows what the version changed
	// Others are jobs that fail with the same error, Alike its text without what differs between them, Print its
	// fingerprint, and Again the runs that a retry of all repeats.
	Others []need
	Alike  string
	Print  string
	Again  []string
}

type dueRow struct {
	At, In          When
	Namespace, Name string
	Address         string
}

type nodeShare struct {
	Name, State       string
	Running, Capacity int
	Share             template.HTML
}

type change struct {
	At                    When
	Actor, Action, Object string
	Address               string
}

type outcomeShare struct {
	State   State
	Count   string
	Share   template.HTML
	Percent string
	Address string
}

const (
	// dueWithin is what the overview calls soon, and dueRows how much of that it lists.
	dueWithin = time.Hour
	dueRows   = 8
	// denserThan leaves out jobs that are due all the time.
	denserThan = time.Minute
	// changeRows is how many changes the overview lists.
	changeRows = 7
	// wallRows is how much the wall lists: what fits on a screen in large type.
	wallRows = 10
)

func (s *site) overview(p *page) error {
	return s.overviewAs(p, "overview", p.layout("overview.title", "overview"))
}

// wall is the overview in large type, for a screen on a wall.
func (s *site) wall(p *page) error {
	return s.overviewAs(p, "wall", p.layout("wall.title", "overview"))
}

func (s *site) overviewAs(p *page, name string, l *Layout) error {
	due, err := s.Service.Load.Planned(p.ctx(), p.who, l.Namespace, p.now, p.now.Add(dueWithin), dueRows*4, 2)
	if err != nil {
		return err
	}
	if len(due) == 0 && l.Namespace == "" {
		jobs, err := s.Service.Jobs.Listed(p.ctx(), p.who, client.JobQuery{PageSize: 1}, false)
		if err != nil {
			return err
		}
		if len(jobs.Items) == 0 {
			return s.firstStart(p, l)
		}
	}
	v := overviewView{Layout: l, Now: p.dated(p.now) + ", " + p.now.Format("15:04")}
	list, recent, err := s.attention(p, l.Namespace)
	if err != nil {
		return err
	}
	unsnoozed := open(list)
	for i := range list {
		n := p.need(&list[i])
		n.Strip = picture(p.strip(runsOf(recent[list[i].Job])))
		p.marked(&n, &list[i])
		if i < len(unsnoozed) {
			v.Needs = append(v.Needs, n)
		} else {
			v.Snoozed = append(v.Snoozed, n)
		}
	}
	v.Lead = p.lead(list)
	p.whose(&v)
	v.Needs, v.Shared = p.bySameError(v.Needs)
	v.NoChannel = s.frame(p.ctx(), p.who, attentionFor).noChannel
	if l.Namespace == "" {
		l.Attention = len(unsnoozed) // the frame may have been read before
	}
	if p.due(&v, due); v.DueMore > 0 {
		v.DueOf = p.T("overview.of", "i", len(v.Due), "n", len(v.Due)+v.DueMore)
	}
	nodes := s.frame(p.ctx(), p.who, attentionFor).list
	for i := range nodes {
		n := &nodes[i]
		v.Running += n.Running
		state := "" // of most nodes
		if n.State != "live" {
			state = p.T("node." + n.State)
		}
		v.Nodes = append(v.Nodes, nodeShare{Name: n.Name, State: state, Running: n.Running, Capacity: n.Capacity, Share: picture(draw.Share(float64(n.Running), float64(n.Capacity), draw.Run))})
	}
	changes, err := s.Service.Audit.List(p.ctx(), p.who, client.AuditQuery{Namespace: l.Namespace, PageSize: changeRows})
	if err != nil {
		return err
	}
	for i := range changes.Items {
		v.Changes = append(v.Changes, p.change(&changes.Items[i]))
	}
	if err := s.overviewCharts(p, &v); err != nil {
		return err
	}
	l.Events, l.Again = "kind=run.done&kind=job&kind=node", 15
	if l.Namespace != "" {
		l.Events += "&namespace=" + template.URLQueryEscaper(l.Namespace)
	}
	l.Commands = []Command{{p.T("command.shell"), "belfry job list --sort next"}, {"curl", p.curl("GET", "/api/v1/attention", "")}}
	if name == "wall" && len(v.Needs) > wallRows {
		v.Rest, v.Needs = len(v.Needs)-wallRows, v.Needs[:wallRows]
	}
	return p.show(name, v)
}

// attention returns what needs a person in a namespace, or in all, with the last runs of its jobs.
func (s *site) attention(p *page, namespace string) ([]client.Attention, map[string][]client.RecentRun, error) {
	if namespace == "" {
		known := s.frame(p.ctx(), p.who, attentionFor)
		return known.attention, known.recent, known.err
	}
	list, err := s.Service.Attention.List(p.ctx(), p.who, namespace)
	if err != nil {
		return nil, nil, err
	}
	recent, err := s.recent(p.ctx(), p.who, list)
	return list, recent, err
}

// recent returns the last runs of the jobs that need a person.
func (s *site) recent(ctx context.Context, who service.Caller, list []client.Attention) (map[string][]client.RecentRun, error) {
	var names []string
	for i := range list {
		if name := list[i].Job; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return s.Service.Jobs.Recent(ctx, who, names, stripRuns)
}

// overviewCharts draws half a day back and ahead, and counts the outcomes of a day.
func (s *site) overviewCharts(p *page, v *overviewView) error {
	const step = 10 * time.Minute
	day, err := s.Service.Stats.Over(p.ctx(), p.who, client.StatsQuery{Namespace: v.Namespace, From: p.now.Add(-24 * time.Hour), To: p.now, Step: step})
	if err != nil {
		return err
	}
	columns, now, err := s.columns(p, day, p.now.Add(-12*time.Hour), p.now.Add(12*time.Hour), step, 18)
	if err != nil {
		return err
	}
	v.ChartOf = p.T("timeline.starts", "d", p.coarse(step))
	v.Chart = picture(draw.Columns(v.ChartOf, columns, now, p.T("now")+" "+p.now.Format("15:04"), whole, 110))
	counts, all := map[job.Outcome]int{}, 0
	for i := range day.Items {
		for o, n := range day.Items[i].Outcomes {
			if o != job.OutcomeWithdrawn {
				counts[o] += n
				all += n
			}
		}
	}
	v.Ended = p.T("overview.ended")
	for _, name := range job.Outcome("").Values() {
		o := job.Outcome(name)
		if counts[o] == 0 && o != job.OutcomeSucceeded && o != job.OutcomeFailed {
			continue
		}
		v.Outcomes = append(v.Outcomes, outcomeShare{
			State: p.outcome(o), Count: number(int64(counts[o])), Share: picture(draw.Share(float64(counts[o]), float64(all), outcomeClasses[o])),
			Percent: percent(counts[o], all), Address: "/runs?range=24h&outcome=" + name,
		})
	}
	return nil
}

// bySameError gathers the jobs that fail with one error below the worst of them, and says how much that explains.
func (p *page) bySameError(list []need) (needs []need, shared string) {
	at, causes, explained := map[string]int{}, 0, 0
	for i := range list {
		n := list[i]
		first, known := at[n.Print]
		if n.Print == "" || !known {
			at[n.Print] = len(needs)
			needs = append(needs, n)
			continue
		}
		worst := &needs[first]
		if len(worst.Others) == 0 {
			causes, explained, worst.Again = causes+1, explained+1, []string{worst.Retry}
		}
		explained++
		worst.Others = append(worst.Others, n)
		if len(worst.Again) < client.RetriesMax {
			worst.Again = append(worst.Again, n.Retry)
		}
	}
	if causes > 0 {
		shared = p.T("overview.shared", "n", causes, "count", p.spelled(causes), "jobs", explained)
		shared = capital(shared)
	}
	return needs, shared
}

// whose counts the problems by who has taken them, and leaves those that the page was asked for.
func (p *page) whose(v *overviewView) {
	all, asked := v.Needs, p.query("whose")
	for _, one := range []struct {
		value string
		is    func(n *need) bool
	}{{"", func(*need) bool { return true }}, {"mine", func(n *need) bool { return n.IsMine }}, {"untaken", func(n *need) bool { return n.TakenBy == "" }}} {
		var some []need
		for i := range all {
			if one.is(&all[i]) {
				some = append(some, all[i])
			}
		}
		if one.value == asked {
			v.Needs, v.Filtered = some, asked != ""
		}
		v.Whose = append(v.Whose, tab{Name: p.T("overview.whose."+cmp.Or(one.value, "all"), "n", len(some)), Address: p.with("whose", one.value), Current: one.value == asked})
	}
	if len(all) == 0 {
		v.Whose = nil
	}
}

// lead says in a sentence what needs a person: of what is not snoozed, and that channels fail in any case.
func (p *page) lead(list []client.Attention) string {
	fail := slices.ContainsFunc(list, func(a client.Attention) bool { return a.Kind == client.AttentionAlarms })
	all := len(list)
	switch list = open(list); {
	case all == 0:
		return p.T("overview.well")
	case len(list) == 0 && fail:
		return p.T("overview.alarms_snoozed")
	case len(list) == 0:
		return p.T("overview.all_snoozed")
	}
	jobs, nodes, sources, alarms := map[string]bool{}, map[string]bool{}, map[string]bool{}, false
	for i := range list {
		switch a := &list[i]; {
		case a.Kind == client.AttentionAlarms:
			alarms = true
		case a.Source != "":
			sources[a.Source] = true
		case a.Job != "":
			jobs[a.Job] = true
		case a.Node != "":
			nodes[a.Node] = true
		}
	}
	var parts []string
	if len(jobs) > 0 {
		parts = append(parts, p.T("overview.jobs", "n", len(jobs), "count", p.spelled(len(jobs))))
	}
	if alarms {
		parts = append(parts, p.T("overview.alarms"))
	}
	if len(nodes) > 0 {
		parts = append(parts, p.T("overview.nodes", "n", len(nodes), "count", p.spelled(len(nodes))))
	}
	if len(sources) > 0 {
		parts = append(parts, p.T("overview.sources", "n", len(sources), "count", p.spelled(len(sources))))
	}
	n := len(jobs) + len(nodes) + len(sources)
	if alarms {
		n++
	}
	what := parts[0]
	if last := len(parts) - 1; last > 0 {
		what = strings.Join(parts[:last], p.T("comma")) + p.T("and") + parts[last]
	}
	key := "overview.needs"
	if n > 1 {
		key = "overview.need"
	}
	text := p.T(key, "what", what)
	if !fail { // without which less may be known
		text += p.T("overview.rest")
	}
	return capital(text)
}

// capital begins a text with a capital, where its script has them.
func capital(text string) string {
	if text != "" && 'a' <= text[0] && text[0] <= 'z' {
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return text
}

// spelled writes small counts as words, where the language does.
func (p *page) spelled(n int) string {
	if words := strings.Fields(p.T("overview.counts")); n >= 1 && n <= len(words) {
		return words[n-1]
	}
	return number(int64(n))
}

// attention says what is wrong.
func (p *page) attention(a *client.Attention) string {
	return p.withCause(p.reason(a.TextArgs.Reason(a.Text, a.TextCode)), a.Text, &a.Failure)
}

func (p *page) need(a *client.Attention) need {
	namespace, name := splitName(a.Job)
	n := need{Namespace: namespace, Name: name, About: a.Job, Address: "/jobs/" + a.Job, IsJob: a.Job != "", Text: p.T("need."+string(a.Kind), "text", p.attention(a)), Since: p.minute(a.Since)}
	n.Open = n.Address
	if !a.Run.IsZero() {
		n.Open = "/runs/" + a.Run.String()
	}
	n.State = State{Class: "fail", Icon: "fail"}
	if a.Severity == client.SeverityWarning {
		n.State = State{Class: "warn", Icon: "warn"}
	}
	switch a.Kind {
	case client.AttentionLate:
		n.State, n.Pause = State{Class: "warn", Icon: "wait"}, true
		n.Times = p.T("overview.waiting", "n", a.Count)
	case client.AttentionSlow:
		n.State.Icon = "time"
	case client.AttentionPaused:
		n.State.Icon, n.Resume = "pause", true
		if a.Count > 0 { // how often it failed stands beside its cause
			n.Whole, n.Text, n.Times = n.Text, clean(a.Cause), p.T("overview.failures", "n", a.Count)
			if a.Cause == "" {
				n.Text = p.T("job.failed_in_row", "n", a.Count)
			}
		}
	case client.AttentionApproval:
		n.State, n.Asks = State{Class: "run", Icon: "user"}, true
	case client.AttentionFailing:
		if a.Cause != "" { // how often it failed stands beside it
			n.Whole, n.Text = n.Text, clean(a.Cause)
		}
		n.Pause, n.Times = true, p.T("overview.failures", "n", a.Count)
		if n.Version = a.SinceVersion; n.Version > 0 {
			n.Times += p.T("comma") + p.T("overview.with_version", "v", n.Version)
			n.Change = changeAddress(n.Address, n.Version, n.Version-1)
		}
		if !a.Run.IsZero() {
			n.Retry, n.Print, n.Alike = a.Run.String(), a.CauseFingerprint, clean(reason.Alike(cmp.Or(a.Cause, a.Text)))
		}
	case client.AttentionAlarms:
		n.State.Icon, n.Address, n.Open = "bell", "/notifications", "/notifications"
		n.Name = p.T("overview.alarms_fail", "n", a.Count)
		n.Text = a.Channel + ": " + clean(p.reason(a.TextArgs.Reason(a.Text, a.TextCode)))
	case client.AttentionSource:
		n.Name, n.Address = a.Source, jobsOf(a.Source)
		n.Open = n.Address
	case client.AttentionNodeSilent, client.AttentionClockOff, client.AttentionNode, client.AttentionStore:
		n.State.Icon, n.Name = "nodes", p.T("overview.node", "name", p.site.host(a.Node))
		n.Address = "/nodes#" + a.Node
		n.Open = n.Address
	}
	n.About, n.Whole, n.Text = cmp.Or(n.About, n.Name), cmp.Or(n.Whole, n.Text), short(n.Text)
	return n
}

// jobsOf is the list of the jobs of an owner.
func jobsOf(owner string) string {
	return "/jobs?" + url.Values{"q": {"label:" + service.OwnerLabel + "=" + owner}}.Encode()
}

// due lists what is due soon, without what is due all the time.
func (p *page) due(v *overviewView, planned []service.PlannedJob) {
	for i := range planned {
		d := &planned[i]
		if len(d.Times) == 0 || len(d.Times) > 1 && d.Times[1].Sub(d.Times[0]) <= denserThan {
			continue
		}
		if len(v.Due) == dueRows {
			v.DueMore++
			continue
		}
		namespace, name := splitName(d.Job)
		v.Due = append(v.Due, dueRow{At: p.minute(d.Times[0]), In: p.relative(d.Times[0]), Namespace: namespace, Name: name, Address: "/jobs/" + d.Job})
	}
}

func (p *page) change(c *client.AuditRecord) change {
	ch := change{At: p.minute(c.Time), Actor: clean(c.Actor), Action: p.action(c.Action), Object: clean(c.Object)}
	if (strings.HasPrefix(c.Action, "job.") || strings.HasPrefix(c.Action, "run.")) && strings.Contains(c.Object, "/") {
		ch.Address = "/jobs/" + c.Object
	}
	return ch
}
