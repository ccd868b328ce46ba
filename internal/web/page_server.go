package web

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/draw"
	"github.com/belfry-cron/belfry/internal/i18n"
	"github.com/belfry-cron/belfry/internal/service"
	"github.com/belfry-cron/belfry/job"
)

// nodesView is the list of nodes.
type nodesView struct {
	*Layout
	Tabs      []tab
	Lead, Sub string
	Notes     []nodeNote
	Rows      []nodeRow
	Gone      []nodeRow
	// StoreName is the program of the store, with its version.
	StoreName   string
	Store, Late []fact
	LateOf      string
}

// nodeNote is a warning about a node.
type nodeNote struct{ Title, Text string }

type nodeRow struct {
	Name              string
	State             State
	Roles             string
	Labels            []string
	Running, Capacity int
	Share             template.HTML
	Backlog           int
	Clock             string
	ClockOff          bool
	Version           string
	Up                string
	Renewed           When
	Drained, CanDrain bool
	DrainText         string
	Address           string
	Store, StoreMore  string // how long the store takes for a call, and for which
	Far               bool
	Partitions        int
	Hour              template.HTML // what it has started in the last hour
	HourCount         string
	Left              When
}

const (
	// clockOff is by how much a clock may differ before the page says so.
	clockOff = 0.5
	// far is how many seconds a call of the store usually takes from a node that the page calls
	// far from it: within a data center it takes some milliseconds, from the next continent 100.
	far = 0.05
	// lateSpan is of which time the page says how late runs started, and lateFor for how long
	// that is kept: the page is read again each second.
	lateSpan = time.Hour
	lateFor  = 10 * time.Second
)

// startsStep is how many minutes a mark of the last hour stands for.
const startsStep = 3

// precise writes seconds as milliseconds with a digit behind them.
func (p *page) precise(seconds float64) string {
	return fmt.Sprintf("%.1f %s", seconds*1000, units[p.lang][4])
}

var nodeLooks = map[string]State{
	"live":    {Class: "ok", Icon: "ok"},
	"drained": {Class: "mute", Icon: "drain"},
	"leaving": {Class: "warn", Icon: "drain"},
	"silent":  {Class: "lost", Icon: "lost"},
	"left":    {Class: "mute", Icon: "skip"},
}

func (s *site) nodes(p *page) error {
	l := p.layout("nodes.title", "nodes")
	list, err := s.Service.Nodes.All(p.ctx(), p.who)
	if err != nil {
		return err
	}
	about, err := s.Service.Nodes.About(p.ctx(), p.who)
	if err != nil {
		return err
	}
	late, err := s.lateness(p)
	if err != nil {
		return err
	}
	v := nodesView{Layout: l, Tabs: p.nodeTabs("nodes"), StoreName: about.StoreVersion, Store: p.storeFacts(&about, list)}
	v.Late, v.LateOf = p.lateFacts(late)
	live, running, capacity, ready := 0, 0, 0, 0
	versions := map[string]bool{}
	for i := range list {
		n := &list[i]
		row := p.nodeRow(n)
		row.Left = p.relative(cmp.Or(n.Left, n.Renewed))
		if n.State == "left" || n.State == "silent" && n.Running == 0 {
			v.Gone = append(v.Gone, row)
			continue
		}
		if n.State == "live" {
			live++
			running, capacity, ready = running+n.Running, capacity+n.Capacity, ready+n.Ready
		}
		if n.Version != "" {
			versions[n.Version] = true
		}
		v.Rows = append(v.Rows, row)
		if note := p.nodeNote(n, list); note.Title != "" {
			v.Notes = append(v.Notes, note)
		}
	}
	v.Lead, v.Sub = p.T("nodes.lead", "n", live), p.T("nodes.slots", "running", number(int64(running)), "capacity", number(int64(capacity)))
	if ready > 0 {
		v.Sub += " " + p.T("nodes.waiting", "n", ready)
	}
	if len(versions) > 1 {
		v.Sub += " " + p.T("nodes.versions", "list", strings.Join(slices.Sorted(maps.Keys(versions)), p.T("comma")))
	}
	l.Events, l.Again = "kind=node&kind=run.running&kind=run.done", 3
	l.Commands = []Command{{p.T("command.shell"), "belfry node list"}, {"curl", p.curl("GET", "/api/v1/nodes", "")}}
	return p.show("nodes", v)
}

func (p *page) nodeRow(n *client.Node) nodeRow {
	state := nodeLooks[n.State]
	state.Text = p.T("node." + n.State)
	row := nodeRow{
		Name: n.Name, State: state, Roles: strings.Join(n.Roles, ", "), Running: n.Running, Capacity: n.Capacity, Backlog: n.Ready,
		Share: picture(draw.Share(float64(n.Running), float64(n.Capacity), draw.Run)), Version: n.Version, Up: p.coarse(p.now.Sub(n.Joined)),
		Renewed: p.relative(n.Renewed), Drained: n.State == "drained", CanDrain: n.State == "live" && p.who.May(administer) == nil, Address: n.Address,
	}
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		row.Labels = append(row.Labels, key+"="+n.Labels[key])
	}
	ahead := time.Duration(n.ClockAhead * float64(time.Second))
	row.Clock, row.ClockOff = fmt.Sprintf("%+d %s", ahead.Milliseconds(), units[p.lang][4]), n.ClockAhead > clockOff || n.ClockAhead < -clockOff
	row.Far = n.StoreP50 >= far
	if n.StoreP50 > 0 {
		row.Store, row.StoreMore = p.precise(n.StoreP50), "p50 "+p.precise(n.StoreP50)+", p99 "+p.precise(n.StoreP99)
	} else if n.StoreRead > 0 {
		row.Store, row.StoreMore = p.precise(n.StoreRead), p.T("nodes.last_read")
	}
	row.Partitions = n.Partitions
	if len(n.Starts) > 0 {
		sum, marks := 0, []draw.Mark{}
		for i := 0; i < len(n.Starts); i += startsStep {
			part := 0
			for _, count := range n.Starts[i:min(i+startsStep, len(n.Starts))] {
				part += count
			}
			class := draw.OK
			if part == 0 {
				class = draw.Mute
			}
			marks = append(marks, draw.Mark{Class: class, Value: float64(part), Title: p.T("nodes.started", "n", part, "d", p.coarse(startsStep*time.Minute))})
			sum += part
		}
		row.HourCount = number(int64(sum))
		row.Hour = picture(draw.Strip(p.T("nodes.hour_of", "n", sum), marks))
	}
	if n.DrainedBy != "" {
		row.DrainText = strings.TrimSuffix(p.T("nodes.drained_by", "who", n.DrainedBy, "when", p.distance(n.DrainedSince))+": "+clean(n.DrainReason), ": ")
	}
	return row
}

// nodeNote says that a node is far from its store, or has a wrong clock.
func (p *page) nodeNote(n *client.Node, all []client.Node) (note nodeNote) {
	if n.StoreP50 >= far {
		note = nodeNote{p.T("nodes.far", "name", n.Name), p.T("nodes.far_calls", "d", p.precise(n.StoreP50))}
		if best := nearest(all); best.StoreP50 < n.StoreP50 {
			note.Text = p.T("nodes.far_calls_than", "d", p.precise(n.StoreP50), "other", p.precise(best.StoreP50), "node", best.Name)
		}
	}
	if ahead := time.Duration(n.ClockAhead * float64(time.Second)); ahead.Abs().Seconds() > clockOff {
		key := "nodes.clock_ahead"
		if ahead < 0 {
			key = "nodes.clock_behind"
		}
		if note.Title == "" {
			note.Title = p.T("nodes.clock_off", "name", n.Name)
		}
		note.Text = strings.TrimSpace(note.Text + " " + p.T(key, "d", p.took(ahead.Abs())))
	}
	return note
}

// nearest is the node that the store answers soonest.
func nearest(all []client.Node) (best client.Node) {
	for i := range all {
		if n := &all[i]; n.StoreP50 > 0 && (best.StoreP50 == 0 || n.StoreP50 < best.StoreP50) {
			best = *n
		}
	}
	return best
}

// storeFacts are what the server says of its store, and how fast the store answers it and the
// node that it answers slowest.
func (p *page) storeFacts(about *client.Server, all []client.Node) []fact {
	var own, slowest *client.Node
	for i := range all {
		n := &all[i]
		if n.StoreP50 == 0 || n.State == "left" {
			continue
		}
		if n.Name == p.site.Node {
			own = n
		}
		if slowest == nil || n.StoreP50 > slowest.StoreP50 {
			slowest = n
		}
	}
	answers := func(n *client.Node) string {
		return p.T("nodes.answers_to", "p50", p.precise(n.StoreP50), "p99", p.precise(n.StoreP99), "node", n.Name)
	}
	var list []fact
	if own != nil {
		list = append(list, fact{Name: p.T("nodes.answers"), Value: answers(own)})
	}
	if slowest != nil && slowest != own {
		list = append(list, fact{Name: p.T("nodes.slowest"), Value: answers(slowest)})
	}
	list = append(list, fact{Name: p.T("settings.address"), Value: about.Store, Mono: true}, fact{Name: p.T("settings.history"), Value: about.History, Mono: true})
	if !about.Backup.IsZero() {
		list = append(list, fact{Name: p.T("settings.backup"), Value: p.distance(about.Backup)})
	}
	return slices.DeleteFunc(list, func(f fact) bool { return f.Value == "" })
}

// lateness is how long after they were due runs started that ended lately.
type lateness struct {
	read    time.Time
	late    []time.Duration // in order
	longest client.Run
	cut     bool // there were more
}

// lateness reads how late the runs started that ended in the last hour, at most PageMax of them.
// First attempts on nodes count: a retry is due later, and what others report is not started by
// a node.
func (s *site) lateness(p *page) (*lateness, error) {
	old, _ := s.late.Load(p.who.Says())
	if l, _ := old.(*lateness); l != nil && p.now.Sub(l.read).Abs() < lateFor {
		return l, nil
	}
	page, err := s.Service.Runs.List(p.ctx(), p.who, client.RunQuery{States: []job.RunState{job.StateDone}, From: p.now.Add(-lateSpan), PageSize: service.PageMax})
	if err != nil {
		return nil, err
	}
	l := &lateness{read: p.now, cut: page.NextPageToken != ""}
	longest := time.Duration(-1)
	for i := range page.Items {
		r := &page.Items[i]
		if r.Attempt != 1 || r.Node == "" || r.Started.IsZero() {
			continue
		}
		late := max(r.Started.Sub(r.Due), 0)
		l.late = append(l.late, late)
		if late > longest {
			longest, l.longest = late, *r
		}
	}
	slices.Sort(l.late)
	s.late.Store(p.who.Says(), l)
	return l, nil
}

// lateFacts says how late runs started, and of which runs that is.
func (p *page) lateFacts(l *lateness) (list []fact, of string) {
	n := len(l.late)
	if n == 0 {
		return nil, p.T("nodes.late_none")
	}
	at := func(percent int) string { return p.took(l.late[(n*percent+99)/100-1]) }
	over, _ := slices.BinarySearch(l.late, time.Second+1)
	list = []fact{
		{Name: "p50", Value: at(50)}, {Name: "p99", Value: at(99)},
		{Name: p.T("nodes.late_longest"), Value: p.took(l.late[n-1]) + p.T("comma") + l.longest.Job, Link: "/runs/" + l.longest.ID.String()},
		{Name: p.T("nodes.late_over", "d", p.coarse(time.Second)), Value: number(int64(n - over))},
	}
	if l.cut {
		return list, p.T("nodes.late_last", "n", n)
	}
	return list, p.T("nodes.late_hour", "n", n)
}

// auditView is the list of changes.
type auditView struct {
	*Layout
	Object, ActorText, Group string
	Actions, Ranges          []choice
	JSON                     string // the same from the API
	Days                     []auditDay
	Older                    string
	Filtered                 bool
}

type auditDay struct {
	Name    string
	Date    string
	Records []auditRow
}

type auditRow struct {
	change
	Icon, Detail string
	Kind         string // the action, to filter by
	Version      int64
	Fields       []fieldChange
	Compare      string
	Client, From string
	Group        string
	// Others are the changes of the same request, which are shown as one entry that opens.
	Others  []auditRow
	Count   int
	Summary string
}

type fieldChange struct{ Path, Before, After string }

const (
	// auditPage is how many changes a page has.
	auditPage = 100
	// summaryNames is how many objects a closed entry of several changes names.
	summaryNames = 3
)

// auditActions are offered as filters.
var auditActions = []string{"job", "job.create", "job.change", "job.delete", "job.pause", "job.resume", "run", "run.hand", "run.cancel", "run.backfill", "calendar", "pool", "channel", "executors", "secret", "node", "token"}

func (s *site) audit(p *page) error {
	l := p.layout("audit.title", "audit")
	v := auditView{Layout: l, Object: p.query("object"), ActorText: p.query("actor"), Group: p.query("group")}
	action := p.query("action")
	for _, a := range auditActions {
		v.Actions = append(v.Actions, choice{Name: p.T("audit.only." + a), Value: a, Current: a == action})
	}
	if action != "" && !slices.Contains(auditActions, action) {
		v.Actions = append(v.Actions, choice{Name: clean(action), Value: action, Current: true})
	}
	v.Filtered = p.query("range") != "" || v.Object != "" || v.ActorText != "" || action != "" || v.Group != "" || l.Namespace != ""
	q := client.AuditQuery{Namespace: l.Namespace, Object: v.Object, Actor: v.ActorText, Action: action, Group: v.Group, PageSize: auditPage, PageToken: p.query("page")}
	since := ""
	for _, r := range auditRanges {
		current := p.query("range") == r.name
		if current {
			q.From, since = p.now.Add(-r.span).UTC().Truncate(time.Minute), r.name
		}
		v.Ranges = append(v.Ranges, choice{Name: p.T("runs.last", "d", p.coarse(r.span)), Value: r.name, Current: current})
	}
	v.JSON = "/api/v1/audit?" + auditQuery(&q)
	page, err := s.Service.Audit.List(p.ctx(), p.who, q)
	if err != nil {
		return err
	}
	for i := range page.Items {
		v.add(p.auditDay(page.Items[i].Time), p.auditRow(&page.Items[i]))
	}
	if page.NextPageToken != "" {
		v.Older = p.with("page", page.NextPageToken)
	}
	l.Events = "kind=job&kind=node&kind=token"
	l.Commands = []Command{
		{p.T("command.shell"), "belfry audit" + flagIf("--object", v.Object) + flagIf("--actor", v.ActorText) + flagIf("--action", action) + flagIf("--since", since)},
		{"curl", p.curl("GET", v.JSON, "")},
	}
	return p.show("audit", v)
}

// auditRanges are the times that the audit is cut to.
var auditRanges = []struct {
	name string
	span time.Duration
}{{"24h", 24 * time.Hour}, {"7d", 7 * 24 * time.Hour}, {"30d", 30 * 24 * time.Hour}}

// auditQuery is the query of the API for what a page shows.
func auditQuery(q *client.AuditQuery) string {
	values := url.Values{}
	for name, value := range map[string]string{"namespace": q.Namespace, "object": q.Object, "actor": q.Actor, "action": q.Action, "group": q.Group} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if !q.From.IsZero() {
		values.Set("from", q.From.Format(time.RFC3339))
	}
	return values.Encode()
}

func (p *page) auditRow(c *client.AuditRecord) auditRow {
	row := auditRow{change: p.change(c), Icon: actionIcon(c.Action), Kind: c.Action, Detail: clean(c.Detail), Version: c.Version, Group: c.Group}
	row.At.Text = c.Time.In(p.zone).Format("15:04:05")
	if c.Client != "" {
		row.Client = p.T("audit.client." + c.Client)
		row.From = p.T("audit.from", "client", row.Client, "address", clean(c.Address))
	}
	for _, f := range c.Changes {
		row.Fields = append(row.Fields, fieldChange{f.Path, clean(f.Before), clean(f.After)})
	}
	if row.Address != "" && c.Version > 1 {
		row.Compare = fmt.Sprintf("%s/definition?version=%d&since=%d", row.Address, c.Version, c.Version-1)
	}
	return row
}

// add adds a change to its day: to the entry of its request, if that is the last one.
func (v *auditView) add(day auditDay, row auditRow) {
	if len(v.Days) == 0 || v.Days[len(v.Days)-1].Name != day.Name {
		v.Days = append(v.Days, day)
	}
	into := &v.Days[len(v.Days)-1]
	if n := len(into.Records); n > 0 && row.Group != "" && into.Records[n-1].Group == row.Group {
		first := &into.Records[n-1]
		first.Others = append(first.Others, row)
		first.Count = len(first.Others) + 1
		if first.Summary == "" {
			first.Summary = first.Object
		}
		if first.Count <= summaryNames {
			first.Summary += ", " + row.Object
		} else if first.Count == summaryNames+1 {
			first.Summary += ", …"
		}
		return
	}
	into.Records = append(into.Records, row)
}

// auditDay names the day of a moment.
func (p *page) auditDay(t time.Time) auditDay {
	t = t.In(p.zone)
	date := p.dated(t)
	switch days := int(midnight(p.now).Sub(midnight(t)).Round(24*time.Hour) / (24 * time.Hour)); days {
	case 0:
		return auditDay{Name: p.T("today"), Date: date}
	case 1:
		return auditDay{Name: p.T("yesterday"), Date: date}
	}
	return auditDay{Name: date}
}

// action says what was done.
func (p *page) action(action string) string {
	if key := "action." + action; i18n.Has(key) {
		return p.T(key)
	}
	return action
}

func actionIcon(action string) string {
	object, verb, _ := strings.Cut(action, ".")
	switch {
	case verb == "pause":
		return "pause"
	case verb == "resume", verb == "hand", verb == "backfill", verb == "retry":
		return "play"
	case verb == "create":
		return "plus"
	case verb == "delete", verb == "cancel", verb == "revoke":
		return "x"
	case object == "node":
		return "drain"
	case object == "token":
		return "key"
	}
	return "edit"
}

// settingsView is what a reader chooses, and what the server says of itself.
type settingsView struct {
	*Layout
	Looks    []editGroup
	Zones    []string
	Tokens   []tokenRow
	Nodes    int
	MadeName string
	Made     string // a new token, shown once
	Facts    []fact
	Hints    []client.Hint
}

type tokenRow struct {
	Name, Role, Namespace, By string
	Created                   When
	Expires, Used             When
	Expired, IsOwn            bool
	Terms                     string
}

func (s *site) settings(p *page) error { return s.showSettings(p, http.StatusOK, "", "") }

// zones are offered for choice; any zone of the table may be typed.
var zones = []string{"UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/Los_Angeles", "Asia/Shanghai", "Asia/Tokyo", "Asia/Kolkata", "Australia/Sydney"}

// choose offers values of a choice, each with its name.
func choose(id, title, value string, named ...string) editGroup {
	g := editGroup{ID: id, Title: title}
	for i := 0; i+1 < len(named); i += 2 {
		g.Kinds = append(g.Kinds, choice{Value: named[i], Name: named[i+1], Current: named[i] == value})
	}
	return g
}

func (s *site) showSettings(p *page, status int, name, secret string) error {
	l := p.layout("settings.title", "settings")
	v := settingsView{Layout: l, Zones: zones, MadeName: name, Made: secret}
	v.Looks = []editGroup{
		choose("lang", p.T("settings.lang"), string(p.lang), "en", "English", "zh", "中文"),
		choose("theme", p.T("settings.theme"), l.Theme, "", p.T("settings.system"), "light", p.T("settings.light"), "dark", p.T("settings.dark")),
		choose("rows", p.T("settings.rows"), l.Rows, "", p.T("settings.dense"), "roomy", p.T("settings.roomy")),
		choose("keys", p.T("settings.single"), l.Keys, "", p.T("settings.on"), "off", p.T("settings.off")),
	}
	var err error
	if v.Facts, v.Hints, err = s.serverFacts(p); err != nil {
		return err
	}
	if l.CanAdminister {
		list, err := s.Service.Access.List(p.ctx(), p.who)
		if err != nil {
			return err
		}
		for i := range list {
			t := &list[i]
			v.Tokens = append(v.Tokens, tokenRow{
				Name: t.Name, Role: p.T("role." + string(t.Role)), Namespace: t.Namespace, By: t.By, Created: p.minute(t.Created),
				Expires: p.minute(t.Expires), Expired: t.Expired, IsOwn: t.Name == p.who.Name, Used: p.minute(t.LastUsed), Terms: p.terms(t),
			})
		}
	}
	l.Commands = []Command{{p.T("command.shell"), "belfry token list"}, {p.T("settings.new_token"), "belfry token create NAME --role viewer"}}
	s.write(p, status, "settings", v)
	return nil
}

// terms says what a token for workers is limited to.
func (p *page) terms(t *client.Token) string {
	var list []string
	if t.Joins != nil {
		list = append(list, p.T("settings.joins", "n", *t.Joins))
	}
	list = append(list, t.Labels...)
	if t.Certificate != "" {
		list = append(list, p.T("settings.certificate", "name", t.Certificate))
	}
	return strings.Join(list, " · ")
}

// serverFacts are what the server says of itself, and what could be better about it.
func (s *site) serverFacts(p *page) ([]fact, []client.Hint, error) {
	about, err := s.Service.Nodes.About(p.ctx(), p.who)
	if err != nil {
		return nil, nil, err
	}
	state := ""
	for _, n := range s.frame(p.ctx(), p.who, frameFor).list {
		if n.Name == about.Node {
			state = p.T("node." + n.State)
		}
	}
	list := []fact{
		{Name: p.T("settings.version"), Value: strings.TrimSuffix(cmp.Or(about.Version, s.Version)+", "+about.Built, ", ")},
		{Name: p.T("settings.node"), Value: about.Node}, {Name: p.T("settings.state"), Value: state},
		{Name: p.T("settings.address"), Value: p.r.Host}, {Name: p.T("settings.roles"), Value: strings.Join(about.Roles, ", ")},
		{Name: p.T("settings.store"), Value: about.Store}, {Name: p.T("settings.store_version"), Value: about.StoreVersion}, {Name: p.T("settings.history"), Value: about.History},
		{Name: p.T("settings.zones"), Value: about.Zones}, {Name: p.T("settings.default_zone"), Value: about.Timezone},
		{Name: p.T("nav.nodes"), Value: fmt.Sprint(about.Nodes)},
	}
	if !about.Started.IsZero() {
		list = append(list, fact{Name: p.T("settings.started"), Value: p.distance(about.Started)})
	}
	if !about.Backup.IsZero() {
		list = append(list, fact{Name: p.T("settings.backup"), Value: p.distance(about.Backup)})
	}
	list = slices.DeleteFunc(list, func(f fact) bool { return f.Value == "" })
	for i := range about.Hints {
		h := &about.Hints[i]
		h.Check, h.Found, h.Do = p.lang.Hint(h.Check), clean(p.lang.Hint(h.Found)), clean(p.lang.Hint(h.Do))
	}
	return list, about.Hints, nil
}

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
	v.Heat = picture(draw.Heat(p.T("kit.heat"), []string{"1", "2", "3"}, cells, func(int, int) string { return "" }, nil, [2]int{1, 40}))
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
	v.Month = []calendarDay{{29, "out", ""}, {30, "off", ""}, {1, "on", "02:30"}, {2, "on today", "02:30"}, {3, "on dst", "02:30"}, {4, "", ""}, {5, "", ""}}
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
