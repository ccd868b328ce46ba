package web

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/draw"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// jobHead is the head of all pages of a job.
type jobHead struct {
	*Layout
	Namespace, Name, Full string
	Address               string
	Version               int64
	Title, Description    string
	State                 State
	StateText             string
	Schedule, Zone        string
	Next                  When
	NextAt                When
	Runs, Icon            string // what it runs: shell, http, the handler
	Wants                 string
	Labels                []string
	Params                []paramField
	Executors             []string // of its group, for a run by hand
	IsPaused, IsFlow      bool
	IsTimed               bool     // it falls due by the clock
	Running               []string // the runs that the reader may cancel
	Tabs                  []tab
	job                   *job.Job
}

// tabCommands are the commands, and the parts of the address in the API, that have what tabs show.
var tabCommands = map[string]string{"schedule": "next", "definition": "revisions", "statistics": "statistics"}

// jobHeadOf reads the job that the address names.
func (s *site) jobHeadOf(p *page, section string) (*jobHead, error) {
	name := p.namedJob()
	d, version, err := s.Service.Jobs.GetAt(p.ctx(), p.who, name, true, p.now)
	if err != nil {
		return nil, err
	}
	j, err := jobOf(d)
	if err != nil {
		return nil, err
	}
	l := p.layout("job.title", "jobs", "name", name.String())
	h := &jobHead{
		Layout: l, Namespace: name.Namespace, Name: name.Name, Full: name.String(), Address: "/jobs/" + name.String(), Version: version,
		Title: clean(j.Title), Description: clean(j.Description), Schedule: p.schedule(j), Runs: runsWhat(p, j), Icon: cmp.Or(workIcons[j.Run.Work()], "term"), job: j,
	}
	if h.IsFlow = j.Run.IsFlow(); h.IsFlow {
		l.Section = "flows"
	}
	if timed := &j.Schedule; len(timed.Cron) > 0 || timed.Every > 0 || len(timed.At) > 0 {
		h.IsTimed, h.Zone = true, timed.Timezone
	}
	l.Namespace = ""
	l.Events = "job=" + template.URLQueryEscaper(name.String())
	if wants := slices.Sorted(maps.Keys(j.Place.Labels)); len(wants) > 0 {
		for i, key := range wants {
			wants[i] = key + "=" + j.Place.Labels[key]
		}
		h.Wants = strings.Join(wants, " ")
	}
	for _, key := range slices.Sorted(maps.Keys(j.Labels)) {
		h.Labels = append(h.Labels, key+"="+j.Labels[key])
	}
	h.Params = p.paramFields(j, nil)
	if group := j.Run.Group(); group != "" && l.CanRun {
		if h.Executors, err = s.addressesOf(p, group); err != nil {
			return nil, err
		}
	}
	h.state(p)
	for _, t := range []struct{ key, path string }{{"runs", ""}, {"graph", "/graph"}, {"schedule", "/schedule"}, {"definition", "/definition"}, {"statistics", "/statistics"}} {
		if t.key == "graph" && !h.IsFlow {
			continue
		}
		tab := tab{Name: p.T("job." + t.key), Address: h.Address + t.path, Current: t.key == section}
		if t.key == "definition" {
			tab.Small = fmt.Sprintf("v%d", version)
		}
		h.Tabs = append(h.Tabs, tab)
	}
	if command := tabCommands[section]; command != "" {
		l.Commands = []Command{{p.T("command.shell"), "belfry job " + command + " " + name.String()}, {"curl", p.curl("GET", "/api/v1/jobs/"+name.String()+"/"+command, "")}}
		return h, nil
	}
	l.Commands = []Command{{p.T("command.shell"), "belfry job get " + name.String() + " -o yaml"}}
	if l.CanRun {
		l.Commands = append(l.Commands, Command{p.T("job.run_now"), "belfry job run " + name.String() + " --logs"},
			Command{"curl", p.curl("POST", "/api/v1/jobs/"+name.String()+"/run", "{}")})
	}
	return h, nil
}

// state says how the job is.
func (h *jobHead) state(p *page) {
	st := h.job.Status
	if st == nil {
		return
	}
	switch {
	case st.State == job.JobPaused:
		h.IsPaused = true
		h.State = State{Class: "mute", Icon: "pause", Text: p.T("jobs.paused_by", "who", st.PausedBy)}
		h.StateText = p.pauseReason(st)
	case st.State == job.JobCompleted:
		h.State = State{Class: "mute", Icon: "check", Text: p.T("jobs.only.completed")}
	default:
		if st.LastOutcome != "" && st.LastOutcome.Alarms() {
			h.State = p.outcome(st.LastOutcome)
			if st.Failures > 1 {
				h.State.Text = p.T("job.failing", "n", st.Failures)
			}
		}
		for _, a := range p.site.frame(p.ctx(), p.who, frameFor).attention {
			if a.Job == h.Full && a.Kind == client.AttentionBarred {
				h.State = State{Class: "fail", Icon: "fail", Text: p.T("job.barred")}
				h.StateText = p.attention(&a)
			}
		}
	}
	if !st.Next.IsZero() && st.State == job.JobActive {
		h.Next, h.NextAt = p.relative(st.Next), p.at(st.Next)
	}
}

// runsWhat says what kind of work a job does.
func runsWhat(p *page, j *job.Job) string {
	if h := j.Run.Handler; h != nil {
		return p.T("job.handler", "name", h.Name)
	}
	return string(j.Run.Work())
}

// jobView is the page of a job with its runs.
type jobView struct {
	*jobHead
	Since   *failingSince
	Window  *openingRow // that is open now
	Chart   template.HTML
	ChartN  int
	Rows    []runRow
	Filters []tab
	Summary []fact
	// SummaryOf says which runs that is about.
	SummaryOf string
	Policy    []fact
	Links     []fact
	Pool      *poolView
	Older     string
	// The last run of a flow, step by step.
	Graph    template.HTML
	GraphRun string
	GraphAt  When
}

// poolView shows who uses the pool of a job.
type poolView struct {
	Name, Lanes  string
	Use          string
	Holds, Waits []poolRow
	MoreHolds    int // how many runs that hold a slot are not listed
	Waiting      int // listed or not
}

// poolRow is a run in a pool.
type poolRow struct {
	Namespace, Name, Address string
	State                    State
	Since                    When
}

// fact is a line of a list of names and values.
type fact struct {
	Name, Value string
	Default     bool
	Link        string
	Mono        bool
}

// sinceShown is how much of a reason the page of a job shows: some two lines, and the run has the rest.
const sinceShown = 300

// failingSince says with which version failures began.
type failingSince struct {
	Count         int
	Version       int64
	Before        int64
	SameVersion   bool
	Since         When
	Compare, Text string
	Whole         string // of the text, if that is cut
}

// chartRuns is how many runs the chart of a job has, and jobRows how many the table below it.
const (
	chartRuns = 72
	jobRows   = 25
)

func (s *site) jobRuns(p *page) error {
	h, err := s.jobHeadOf(p, "runs")
	if err != nil {
		return err
	}
	v := jobView{jobHead: h}
	list, err := s.Service.Runs.List(p.ctx(), p.who, client.RunQuery{Namespace: h.Namespace, Job: h.job.UID.String(), PageSize: chartRuns})
	if err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(r client.Run) bool { return r.Step != "" })
	if err := s.lastFlow(p, &v, list.Items); err != nil {
		return err
	}
	shown := list.Items
	only := p.query("only")
	switch only {
	case "unexpected", "hand":
		q := client.RunQuery{Job: h.Full, PageSize: jobRows}
		if only == "unexpected" {
			q.Outcomes = []job.Outcome{job.OutcomeFailed, job.OutcomeTimedOut, job.OutcomeLost, job.OutcomeMissed, job.OutcomeSkipped}
		} else {
			q.PageSize = chartRuns * 2
		}
		page, err := s.Service.Runs.List(p.ctx(), p.who, q)
		if err != nil {
			return err
		}
		shown = page.Items
		if only == "hand" {
			shown = slices.DeleteFunc(shown, func(r client.Run) bool { return r.Kind != job.RunByHand })
		}
	default:
		only = ""
	}
	v.Filters = []tab{
		{Name: p.T("job.all"), Address: h.Address, Current: only == ""},
		{Name: p.T("job.unexpected"), Address: h.Address + "?only=unexpected", Current: only == "unexpected"},
		{Name: p.T("job.by_hand"), Address: h.Address + "?only=hand", Current: only == "hand"},
	}
	for i := range shown[:min(len(shown), jobRows)] {
		v.Rows = append(v.Rows, p.runRow(&shown[i]))
	}
	for i := range list.Items {
		if r := &list.Items[i]; h.CanRun && r.State == job.StateRunning && r.CancelBy == "" {
			h.Running = append(h.Running, r.ID.String())
		}
	}
	v.Older = "/runs?job=" + template.URLQueryEscaper(h.Full)
	finished := slices.DeleteFunc(slices.Clone(list.Items), func(r client.Run) bool { return r.State == job.StateReady })
	v.ChartN = len(finished)
	v.Chart = picture(p.durations(finished, h.job))
	v.Since = p.failing(finished, h.Address)
	if v.Since != nil {
		v.Since.Count = max(h.job.Status.Failures, 1)
	}
	if err := s.summary(p, &v); err != nil {
		return err
	}
	v.Policy = append(p.policy(h.job), p.source(h)...)
	if v.Links, err = s.links(p, h.job); err != nil {
		return err
	}
	if err := s.pool(p, &v); err != nil {
		return err
	}
	if !h.job.Run.IsReported() { // windows do not concern what others start
		openings, err := s.Service.Load.OpeningsOf(p.ctx(), p.who, h.Namespace, h.job.Labels, p.now, p.now.Add(1))
		if err != nil {
			return err
		}
		if rows := p.openings(openings); len(rows) > 0 {
			v.Window = &rows[0]
		}
	}
	return p.show("job", v)
}

// durations draws how long the last runs took.
func (p *page) durations(recent []client.Run, j *job.Job) string {
	var marks []draw.Mark
	var version int64
	for i := range slices.Backward(recent) {
		r := &recent[i]
		m := p.markOf(r)
		if version != 0 && r.Version != version && r.Version != 0 {
			m.Note = fmt.Sprintf("v%d", r.Version)
		}
		if r.Version != 0 {
			version = r.Version
		}
		if n := len(recent) - 1 - i; n%18 == 6 {
			m.Tick = p.day(r.Scheduled, "15:04")
		}
		marks = append(marks, m)
	}
	var levels []draw.Level
	if expect := j.Policy.Expect; expect != nil && expect.DurationBelow > 0 {
		d := time.Duration(expect.DurationBelow)
		levels = append(levels, draw.Level{Value: d.Seconds(), Text: p.T("job.expected", "d", p.took(d)), Warn: true})
	}
	if p50, p95, ok := quantiles(recent); ok {
		levels = append(levels, draw.Level{Value: p95.Seconds(), Text: "p95 " + p.took(p95)}, draw.Level{Value: p50.Seconds(), Text: "p50 " + p.took(p50)})
	}
	slices.SortFunc(levels, func(a, b draw.Level) int { return cmp.Compare(b.Value, a.Value) })
	return draw.Bars(p.T("job.durations", "n", len(recent)), marks, levels)
}

// quantiles returns the median and the 95th percentile of how long successful runs took.
func quantiles(runs []client.Run) (p50, p95 time.Duration, ok bool) {
	var list []time.Duration
	for i := range runs {
		if r := &runs[i]; r.Outcome == job.OutcomeSucceeded && !r.Started.IsZero() {
			list = append(list, max(r.Ended.Sub(r.Started), 0))
		}
	}
	if len(list) == 0 {
		return 0, 0, false
	}
	slices.Sort(list)
	return list[len(list)/2], list[min(len(list)*95/100, len(list)-1)], true
}

// failing finds where the failures of a job that fails now began. nil: it does not fail.
func (p *page) failing(recent []client.Run, address string) *failingSince {
	n := 0
	for n < len(recent) && recent[n].Outcome != job.OutcomeSucceeded {
		n++
	}
	failed := slices.DeleteFunc(slices.Clone(recent[:n]), func(r client.Run) bool { return r.State != job.StateDone || !r.Outcome.Alarms() })
	if len(failed) == 0 {
		return nil
	}
	first := &failed[len(failed)-1]
	f := &failingSince{Count: len(failed), Version: first.Version, Since: p.at(first.Scheduled), Whole: p.withCause(p.reason(failed[0].Value()), failed[0].Reason, &failed[0].Failure)}
	if f.Text = f.Whole; len(f.Text) > sinceShown {
		f.Text = strings.ToValidUTF8(f.Text[:sinceShown], "") + "…"
	}
	if n < len(recent) && first.Version > recent[n].Version && recent[n].Version > 0 {
		f.Before, f.SameVersion = recent[n].Version, true
		f.Compare = changeAddress(address, f.Version, f.Before)
	}
	return f
}

// changeAddress is the page that shows how two versions of a job differ.
func changeAddress(job string, version, since int64) string {
	return fmt.Sprintf("%s/definition?version=%d&since=%d", job, version, since)
}

// summary says how the last runs went.
func (s *site) summary(p *page, v *jobView) error {
	statistics, err := s.Service.Stats.Of(p.ctx(), p.who, v.job.UID, p.zone.String())
	if err != nil || statistics.Runs == 0 {
		return err
	}
	v.SummaryOf = p.T("job.last_runs", "n", statistics.Runs)
	judged := 0
	for o, n := range statistics.Outcomes {
		if o == job.OutcomeSucceeded || o.Alarms() {
			judged += n
		}
	}
	if judged > 0 {
		v.Summary = append(v.Summary, fact{Name: p.T("job.succeeded"), Value: p.T("job.of", "share", percent(statistics.Outcomes[job.OutcomeSucceeded], judged), "n", number(int64(judged)))})
	}
	if d := statistics.Duration; d.Count > 0 {
		v.Summary = append(v.Summary, fact{Name: p.T("job.duration"), Value: p.seconds(d.P50) + ", " + p.seconds(d.P95)})
	}
	if d := statistics.Lateness; d.Count > 0 {
		v.Summary = append(v.Summary, fact{Name: p.T("job.late"), Value: p.seconds(d.P50) + ", " + p.seconds(d.P95) + ", " + p.seconds(d.P99)})
	}
	v.Summary = append(v.Summary, fact{Name: p.T("job.retried"), Value: number(int64(statistics.Retried))},
		fact{Name: p.T("job.skipped_missed"), Value: number(int64(statistics.Outcomes[job.OutcomeSkipped])) + ", " + number(int64(statistics.Outcomes[job.OutcomeMissed]))})
	return nil
}

// percent writes a share with as many digits as tell it from all.
func percent(part, whole int) string {
	switch {
	case whole == 0:
		return "–"
	case part == 0:
		return "0 %"
	case part == whole:
		return "100 %"
	case whole < 1000:
		return fmt.Sprintf("%.1f %%", min(100*float64(part)/float64(whole), 99.9))
	}
	return fmt.Sprintf("%.2f %%", min(100*float64(part)/float64(whole), 99.99))
}

// policy says in words what happens if something goes wrong. Defaults are marked.
func (p *page) policy(j *job.Job) []fact {
	own := &j.Policy
	list := []fact{{Name: p.T("policy.overlaps"), Value: p.T("policy.overlap." + string(own.Overlap)), Default: own.Overlap == job.OverlapSkip}}
	retry := fact{Name: p.T("policy.fails"), Value: p.T("policy.no_retry"), Default: true}
	if own.Retry != nil && own.Retry.Attempts != nil && *own.Retry.Attempts > 0 {
		backoff := 10 * time.Second
		if own.Retry.Backoff != nil {
			backoff = time.Duration(*own.Retry.Backoff)
		}
		retry = fact{Name: retry.Name, Value: p.T("policy.retry", "n", *own.Retry.Attempts, "d", p.took(backoff))}
	}
	list = append(list, retry)
	hangs := fact{Name: p.T("policy.hangs"), Value: p.T("policy.no_timeout"), Default: true}
	if own.Timeout != nil && *own.Timeout > 0 {
		hangs = fact{Name: hangs.Name, Value: p.T("policy.timeout", "d", p.coarse(time.Duration(*own.Timeout)))}
		if own.KillGrace != nil && *own.KillGrace > 0 {
			hangs.Value += p.T("policy.killed", "d", p.coarse(time.Duration(*own.KillGrace)))
		}
	}
	list = append(list, hangs, fact{Name: p.T("policy.dies"), Value: p.T("policy.lost", "d", p.coarse(time.Duration(own.LostAfter))), Default: own.LostAfter == job.Duration(time.Minute)})
	away := fact{Name: p.T("policy.away"), Value: p.T("policy.missed." + string(own.Missed)), Default: own.Missed == job.MissedLatest}
	if own.LateBy != nil && *own.LateBy < job.Duration(1000*time.Hour) {
		away.Value += p.T("policy.late_by", "d", p.coarse(time.Duration(*own.LateBy)))
	}
	list = append(list, away)
	if own.PauseOnFailure != nil && *own.PauseOnFailure > 0 {
		list = append(list, fact{Name: p.T("policy.in_row", "n", *own.PauseOnFailure), Value: p.T("policy.pauses")})
	}
	if owner := j.Labels[service.OwnerLabel]; owner != "" {
		list = append(list, fact{Name: p.T("job.owner"), Value: clean(owner)})
	}
	return list
}

// source says which commit of a repository the job is of.
func (p *page) source(h *jobHead) (list []fact) {
	if h.job.Status == nil || h.job.Status.Source == nil {
		return nil
	}
	from := h.job.Status.Source
	commit := from.Commit[:min(len(from.Commit), 7)]
	list = append(list, fact{Name: p.T("job.source"), Value: clean(strings.TrimSpace(p.T("job.source_at", "url", from.URL, "commit", commit, "file", from.File)))})
	if from.Edited {
		list = append(list, fact{Name: p.T("job.edited"), Value: p.T("job.edited_since", "commit", commit), Link: changeAddress(h.Address, h.job.Version, from.Version)})
	}
	return list
}

// poolRows is how many runs that hold a slot of the pool, and how many that wait, a page lists.
// poolAgain is how many seconds the page shows them: no event of this job says that runs of others
// begin or end.
const (
	poolRows  = 5
	poolAgain = 10
)

// pool adds how the slots of the shared pool are used, for a job that has one.
func (s *site) pool(p *page, v *jobView) error {
	key := v.job.Policy.ConcurrencyKey
	if key == "" {
		return nil
	}
	name := service.Name{Namespace: v.Namespace, Name: key}
	if namespace, short, qualified := strings.Cut(key, "/"); qualified {
		name = service.Name{Namespace: namespace, Name: short}
	}
	link := fact{Name: p.T("job.pool"), Value: name.String(), Link: "/timeline?by=pool"}
	if job.IsTemplate(key) { // each run says its own
		v.Links = slices.Insert(v.Links, len(v.Links)-1, link)
		return nil
	}
	use, err := s.Service.Runs.PoolUse(p.ctx(), p.who, name)
	switch {
	case err != nil && service.ErrorOf(err).Type == client.TypeForbidden:
		link.Link = "" // a pool of a namespace that the reader has no role in
	case err != nil:
		return err
	default:
		v.Again = poolAgain
		v.Pool = &poolView{Name: name.String(), Lanes: link.Link, Use: p.T("job.pool_use", "n", use.Held, "size", use.Size)}
		if use.Size == 0 {
			v.Pool.Use = p.T("job.pool_use_any", "n", use.Held)
		}
		if use.Rate != nil {
			v.Pool.Use += ", " + rateText(p, use.Rate)
		}
		if use.More && use.Held < use.Size {
			v.Pool.Use = p.T("job.pool_use_least", "n", use.Held, "size", use.Size)
		}
		link.Value += ", " + v.Pool.Use
		v.Pool.Holds, v.Pool.Waits = p.poolRows(use.Holds), p.poolRows(use.Waits)
		v.Pool.MoreHolds, v.Pool.Waiting = use.Held-len(v.Pool.Holds), use.Waiting
	}
	v.Links = slices.Insert(v.Links, len(v.Links)-1, link) // before the uid
	return nil
}

func (p *page) poolRows(runs []client.Run) (rows []poolRow) {
	for i := range runs[:min(len(runs), poolRows)] {
		r := &runs[i]
		row := poolRow{Address: "/runs/" + r.ID.String(), State: p.runState(r), Since: p.relative(cmp.Or(r.Started, r.Due))}
		row.Namespace, row.Name = splitName(r.Job)
		rows = append(rows, row)
	}
	return rows
}

// followerRows is how many jobs that follow this one a page lists.
const followerRows = 10

// links returns what the job is connected with.
func (s *site) links(p *page, j *job.Job) (list []fact, err error) {
	namespace, _ := splitName(j.FullName())
	for _, u := range j.Schedule.On {
		full := u.Job
		if !strings.Contains(full, "/") {
			full = namespace + "/" + full
		}
		list = append(list, p.follows("job.follows", full, []job.UpstreamOn{u.Outcome}, ""))
	}
	page, err := s.Service.Jobs.FollowersOf(p.ctx(), p.who, p.namedJob(), followerRows, p.query("followers"))
	if err != nil {
		return nil, err
	}
	for i := range page.Items {
		f := &page.Items[i]
		list = append(list, p.follows("job.followed_by", f.FullName(), f.Outcomes, f.State))
	}
	if page.NextPageToken != "" {
		list = append(list, fact{Name: p.T("job.followed_by"), Value: p.T("job.more_followers"), Link: p.with("followers", page.NextPageToken) + "#connected"})
	}
	return append(list, fact{Name: "uid", Value: j.UID.String(), Mono: true}), nil
}

// followerNames names the jobs that follow one, at most followerRows of them; "" for none.
func (s *site) followerNames(p *page, name service.Name) (string, error) {
	page, err := s.Service.Jobs.FollowersOf(p.ctx(), p.who, name, followerRows, "")
	var names []string
	for i := range page.Items {
		names = append(names, page.Items[i].FullName())
	}
	if page.NextPageToken != "" && len(names) > 0 {
		names = append(names, p.T("job.more_followers"))
	}
	return strings.Join(names, p.T("comma")), err
}

// follows links to a job that follows this one or is followed by it, with the outcomes that start
// a run.
func (p *page) follows(what, full string, on []job.UpstreamOn, state job.JobState) fact {
	parts := []string{full}
	for _, outcome := range on {
		parts = append(parts, p.T("job.on."+string(cmp.Or(outcome, job.OnSucceeded))))
	}
	if state == job.JobPaused {
		parts = append(parts, p.T("job.on.paused"))
	}
	return fact{Name: p.T(what), Value: strings.Join(parts, p.T("comma")), Link: "/jobs/" + full}
}

// notStarted names active jobs that a run would have started if it had succeeded, and reports whether
// there may be more. A shard alone starts none.
func (s *site) notStarted(p *page, r *client.Run) (names []string, more bool, err error) {
	if r.State != job.StateDone || !r.Outcome.Alarms() || r.Shards > 0 || r.Step != "" {
		return nil, false, nil
	}
	namespace, name := splitName(r.Job)
	page, err := s.Service.Jobs.FollowersOf(p.ctx(), p.who, service.Name{Namespace: namespace, Name: name}, followerRows, "")
	for i := range page.Items {
		f := &page.Items[i]
		ends := slices.Contains(f.Outcomes, job.OnFinished)
		started := r.Outcome.Failed() && (ends || slices.Contains(f.Outcomes, job.OnFailed))
		if f.State == job.JobActive && !started && (ends || slices.Contains(f.Outcomes, job.OnSucceeded)) {
			names = append(names, f.FullName())
		}
	}
	return names, page.NextPageToken != "", err
}
