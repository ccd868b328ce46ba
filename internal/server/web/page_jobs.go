package web

import (
	"cmp"
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

// jobsView is the list of jobs.
type jobsView struct {
	*Layout
	Tabs     []tab
	Text     string // as it was typed, labels included
	Words    string // of it, without what Tokens show
	Kept     []string
	Tokens   []filterToken
	Sort     string
	Sorts    []tab
	Rows     []jobRow
	Older    string
	Filtered bool
	Clear    string
	State    string
	CanMatch bool   // all that match the filter can be changed at once
	Badge    string // the label that alone filters, which a badge can show
}

type tab struct {
	Name, Address, Small string
	Current              bool
}

// filterToken is a filter with the address of the page without it.
type filterToken struct{ Name, Value, Without string }

type jobRow struct {
	Namespace, Name, Address string
	Title                    string
	Schedule                 string
	Expression               string
	Next, NextAt             When
	Paused, PausedWhy        string
	Completed                bool
	Asks                     bool // a run needs a value for a parameter
	Strip                    template.HTML
	Last                     State
	LastAt                   When
	LastRun                  string
	Typical                  string
	Labels                   []string
	MoreLabels               int
	LabelsTitle              string
}

// jobsPage is how many jobs a page has: each has a strip of its last runs.
const jobsPage = 100

// failingJobs is the view of the jobs whose last run failed, and unusedJobs of those that never ran;
// the others are states.
const (
	failingJobs = "failing"
	unusedJobs  = "never_ran"
)

// stripRuns is how many runs a strip shows.
const stripRuns = 20

func (s *site) jobs(p *page) error {
	l := p.layout("jobs.title", "jobs")
	text, state := strings.TrimSpace(strings.Join(p.r.URL.Query()["q"], " ")), p.query("state")
	search := splitSearch(text)
	q := client.JobQuery{
		Namespace: l.Namespace, Text: search.words, Labels: search.labels, State: job.JobState(state), Failing: state == failingJobs, NeverRan: state == unusedJobs,
		Sort: client.JobOrder(p.query("sort")), PageSize: jobsPage, PageToken: p.query("page"), Recent: stripRuns,
	}
	if q.Failing || q.NeverRan {
		q.State = ""
	}
	if search.due > 0 {
		q.DueBefore, q.Sort = p.now.Add(search.due), client.ByNext
	}
	page, err := s.jobPage(p, q)
	if err != nil {
		return err
	}
	v := jobsView{Layout: l, Text: text, Words: search.words, Sort: p.query("sort"), Clear: "/jobs", State: state, CanMatch: canMatch(search, state)}
	for _, order := range []client.JobOrder{client.ByName, client.ByNext, client.ByFailure} {
		address := string(order)
		if order == client.ByName {
			address = ""
		}
		v.Sorts = append(v.Sorts, tab{Name: p.T("jobs.sort." + string(order)), Address: p.with("sort", address, "page", ""), Current: q.Sort == order || q.Sort == "" && order == client.ByName})
	}
	v.Filtered = text != "" || v.State != "" || l.Namespace != ""
	for _, key := range slices.Sorted(maps.Keys(search.labels)) {
		word := "label:" + key + "=" + search.labels[key]
		v.Tokens, v.Kept = append(v.Tokens, filterToken{key, search.labels[key], p.with("q", without(text, word), "page", "")}), append(v.Kept, word)
	}
	if search.due > 0 {
		word := dueWord + search.dueText
		v.Tokens, v.Kept = append(v.Tokens, filterToken{p.T("jobs.due_within"), search.dueText, p.with("q", without(text, word), "page", "")}), append(v.Kept, word)
	}
	for _, of := range []string{"", "active", failingJobs, "paused", "completed", unusedJobs} {
		v.Tabs = append(v.Tabs, tab{Name: p.T("jobs.only." + cmp.Or(of, "all")), Address: p.with("state", of, "page", ""), Current: state == of})
	}
	for i := range page.Items {
		v.Rows = append(v.Rows, p.jobRow(&page.Items[i]))
	}
	if page.NextPageToken != "" {
		v.Older = p.with("page", page.NextPageToken)
	}
	l.Events = "kind=run&kind=job"
	if l.Namespace != "" {
		l.Events += "&namespace=" + template.URLQueryEscaper(l.Namespace)
	}
	if v.Badge = search.label(); state != "" || !l.CanDefine {
		v.Badge = ""
	}
	l.Commands = []Command{
		{p.T("command.shell"), "belfry job list" + flagIf("--namespace", l.Namespace) + strings.NewReplacer("--state "+failingJobs, "--failing", "--state "+unusedJobs, "--never-ran").Replace(flagIf("--state", state)) + flagIf("--due-before", search.dueText)},
		{"curl", p.curl("GET", "/api/v1/jobs", "")},
	}
	if v.Badge != "" {
		l.Commands = append(l.Commands, Command{p.T("badge.new"), "belfry badge create" + flagIf("--namespace", l.Namespace) + flagIf("--label", v.Badge)})
	}
	return p.show("jobs", v)
}

// listedJob is a job of a list with its last runs, the latest first.
type listedJob struct {
	*job.Job
	Recent []client.Run
}

// jobPage returns a page of jobs.
func (s *site) jobPage(p *page, q client.JobQuery) (client.Page[listedJob], error) {
	var out client.Page[listedJob]
	list, err := s.Service.Jobs.Listed(p.ctx(), p.who, q, true)
	if err != nil {
		return out, err
	}
	out.NextPageToken = list.NextPageToken
	active, err := s.Service.Runs.List(p.ctx(), p.who, client.RunQuery{
		Namespace: q.Namespace, States: []job.RunState{job.StateRunning, job.StateWaiting}, PageSize: service.PageMax,
	})
	if err != nil {
		return out, err
	}
	for _, j := range list.Items {
		listed := listedJob{Job: j}
		if at := slices.IndexFunc(active.Items, func(r client.Run) bool { return r.JobUID == j.UID && r.Step == "" }); at >= 0 {
			listed.Recent = append(listed.Recent, active.Items[at])
		}
		listed.Recent = append(listed.Recent, runsOf(list.Recent[j.FullName()])...)
		out.Items = append(out.Items, listed)
	}
	return out, nil
}

// runsOf are the runs of a list of recent ones.
func runsOf(recent []client.RecentRun) (list []client.Run) {
	for _, r := range recent {
		list = append(list, client.Run{
			ID: r.ID, State: job.StateDone, Outcome: r.Outcome, Started: r.Started, Ended: r.Ended, Attempt: r.Attempt, Scheduled: cmp.Or(r.Started, r.Ended),
		})
		for _, state := range r.Steps {
			at := &list[len(list)-1]
			at.Steps = append(at.Steps, client.StepState{State: state})
		}
	}
	return list
}

func (p *page) jobRow(j *listedJob) jobRow {
	namespace, name := splitName(j.FullName())
	row := jobRow{Namespace: namespace, Name: name, Address: "/jobs/" + j.FullName(), Title: clean(j.Title), Schedule: p.schedule(j.Job), Expression: strings.Join(j.Schedule.Cron, " | ")}
	for _, param := range j.Params {
		row.Asks = row.Asks || param.Required && param.Default == ""
	}
	if st := j.Status; st != nil {
		switch st.State {
		case job.JobPaused:
			row.Paused, row.PausedWhy = p.T("jobs.paused_by", "who", st.PausedBy), p.pauseReason(st)
		case job.JobCompleted:
			row.Completed = true
		}
		if !st.Next.IsZero() && st.State == job.JobActive {
			row.Next, row.NextAt = p.relative(st.Next), p.minute(st.Next)
		}
		if st.LastOutcome != "" {
			row.Last, row.LastAt = p.outcome(st.LastOutcome), p.relative(st.LastEnded)
			row.LastRun = "/runs/" + st.LastRun.String()
		}
	}
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(j.Labels)) {
		pairs = append(pairs, key+"="+j.Labels[key])
	}
	if len(pairs) > 0 {
		row.Labels, row.MoreLabels, row.LabelsTitle = pairs[:1], len(pairs)-1, strings.Join(pairs, "\n")
	}
	if len(j.Recent) > 0 {
		latest := &j.Recent[0]
		if latest.State != job.StateDone {
			row.Last, row.LastAt, row.LastRun = p.runState(latest), When{}, "/runs/"+latest.ID.String()
		}
		row.Strip = picture(p.strip(j.Recent))
		row.Typical = p.typical(j.Recent)
	}
	return row
}

// strip draws runs, the latest of which comes first.
func (p *page) strip(recent []client.Run) string {
	var marks []draw.Mark
	for i := range slices.Backward(recent) {
		marks = append(marks, p.markOf(&recent[i]))
	}
	return draw.Strip(p.T("jobs.strip", "n", len(recent)), marks)
}

// typical words the usual duration, "" where there is none.
func (p *page) typical(recent []client.Run) string {
	usual := p.usual(recent)
	if usual == 0 {
		return ""
	}
	return p.took(usual)
}

// usual is the median duration of runs that succeeded, 0 for none.
func (p *page) usual(recent []client.Run) time.Duration {
	var list []time.Duration
	for i := range recent {
		if recent[i].Outcome == job.OutcomeSucceeded {
			list = append(list, p.duration(&recent[i]))
		}
	}
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return max(list[len(list)/2], 1)
}

// jobSearch is what was typed into the search of the list of jobs.
type jobSearch struct {
	words   string
	labels  map[string]string
	due     time.Duration // within which a job falls due; 0 for none
	dueText string
}

// dueWord begins a word that selects jobs by when they fall due.
const dueWord = "due:"

// splitSearch divides what was typed into words, label:key=value and due:1h.
func splitSearch(text string) (s jobSearch) {
	var rest []string
	for _, word := range strings.Fields(text) {
		if pair, ok := strings.CutPrefix(word, "label:"); ok {
			if key, value, ok := strings.Cut(pair, "="); ok && key != "" {
				if s.labels == nil {
					s.labels = map[string]string{}
				}
				s.labels[key] = value
				continue
			}
		}
		if within, ok := strings.CutPrefix(word, dueWord); ok {
			if d, err := job.ParseDuration(within); err == nil && d > 0 {
				s.due, s.dueText = time.Duration(d), within
				continue
			}
		}
		rest = append(rest, word)
	}
	s.words = strings.Join(rest, " ")
	return s
}

// label returns the label that alone selects jobs, "" where something else does too.
func (s *jobSearch) label() string {
	if s.words != "" || s.due > 0 || len(s.labels) != 1 {
		return ""
	}
	for key, value := range s.labels {
		return key + "=" + value
	}
	return ""
}

// canMatch reports whether all jobs of a filter can be changed at once: jobs of a state, not jobs
// that a search of the history or the planner finds.
func canMatch(search jobSearch, state string) bool {
	return search.due == 0 && state != failingJobs && state != unusedJobs
}

func without(text, word string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(text), func(w string) bool { return w == word }), " ")
}

// flagIf writes a flag that has a value.
func flagIf(flag, value string) string {
	if value == "" {
		return ""
	}
	return " " + flag + " " + quoted(value)
}

// quoted writes a word for a shell.
func quoted(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// curl writes a request of the API as a command. The token is read from the environment.
func (p *page) curl(method, path, body string) string {
	text := `curl -H "Authorization: Bearer $BELFRY_TOKEN"`
	if method != "GET" {
		text += " -X " + method
	}
	if body != "" {
		text += " -H 'Content-Type: application/json' -d " + quoted(body)
	}
	return text + " " + quoted(p.reached()+path)
}

// reached is how the browser reaches this server, without a path.
func (p *page) reached() string {
	if p.r.TLS != nil || p.r.Header.Get("X-Forwarded-Proto") == "https" {
		return "https://" + p.r.Host
	}
	return "http://" + p.r.Host
}

// namedJob is the job that the address names.
func (p *page) namedJob() service.Name {
	return service.Name{Namespace: p.r.PathValue("namespace"), Name: p.r.PathValue("name")}
}
