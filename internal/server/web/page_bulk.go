package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// bulkView asks for confirmation before many jobs are changed, and says which were refused.
type bulkView struct {
	*Layout
	Action   string
	Count    int
	Names    []string // those that were selected one by one
	Shown    []string // the first of them
	More     int      // that are not shown
	All      bool     // all that match the filter
	Filter   bulkFilter
	FilterOf string // the filter in words
	Back     string
	Done     bool
	Changed  int
	Refused  []client.BulkError
}

// bulkFilter is the filter of the list of jobs, as the form carries it.
type bulkFilter struct{ Namespace, Text, State string }

// bulkActions are what the list of jobs offers.
var bulkActions = []client.BulkAction{client.BulkRun, client.BulkPause, client.BulkResume, client.BulkDelete}

// bulkShown is how many names the confirmation lists.
const bulkShown = 12

// bulk asks before it changes the jobs that are selected in the list, or all that match its
// filter, and then changes them.
func (s *site) bulk(p *page) error {
	form := p.r.PostForm
	v := bulkView{
		Action: form.Get("action"), Names: form["job"], All: form.Get("all") != "", Back: p.back("/jobs"),
		Filter: bulkFilter{Namespace: form.Get("namespace"), Text: form.Get("q"), State: form.Get("state")},
	}
	if !slices.Contains(bulkActions, client.BulkAction(v.Action)) {
		return service.WrongParameter("action", phrase.UnknownAction, phrase.AllowedActions.Of([]string{"run", "pause", "resume", "delete"}))
	}
	right := service.Define
	if v.Action == string(client.BulkRun) {
		right = service.Operate
	}
	if err := p.who.May(right); err != nil {
		return err
	}
	if !v.All && len(v.Names) > jobsPage {
		return service.WrongParameter("job", phrase.GivenTooOften, phrase.SelectInList)
	}
	if v.All && !canMatch(splitSearch(v.Filter.Text), v.Filter.State) {
		return service.WrongParameter("all", phrase.NotWithFilter, phrase.SelectInList)
	}
	v.Layout = p.layout("bulk.title", "jobs")
	if form.Get("confirmed") != "" {
		return s.changeMany(p, &v)
	}
	if err := s.countMany(p, &v); err != nil {
		return err
	}
	return p.show("bulk", v)
}

// request is what the API calls the change of all that match the filter.
func (v *bulkView) request(p *page) client.Bulk {
	search := splitSearch(v.Filter.Text)
	bulk := client.Bulk{
		Action: client.BulkAction(v.Action), Namespace: v.Filter.Namespace, Text: search.words, Labels: search.labels, State: job.JobState(v.Filter.State),
		Reason: strings.TrimSpace(p.r.PostForm.Get("reason")), Missed: job.Missed(p.r.PostForm.Get("missed")),
	}
	bulk.All = bulk.Namespace == "" && bulk.Text == "" && len(bulk.Labels) == 0 && bulk.State == ""
	return bulk
}

// countMany fills in what will be changed.
func (s *site) countMany(p *page, v *bulkView) error {
	v.Count, v.Shown = len(v.Names), v.Names
	if v.All {
		bulk := v.request(p)
		bulk.DryRun = true
		result, err := s.Service.Bulk.Do(p.ctx(), p.who, bulk)
		if err != nil {
			return err
		}
		v.Count, v.Names, v.Shown = result.Matched, nil, nil
		var filter []string
		for _, word := range []string{v.Filter.Namespace, v.Filter.State, v.Filter.Text} {
			if word != "" {
				filter = append(filter, clean(word))
			}
		}
		v.FilterOf = strings.Join(filter, " ")
		bulk.DryRun, bulk.Expect = false, &result.Matched
		if body, err := json.Marshal(bulk); err == nil {
			v.Commands = []Command{{"curl", p.curl("POST", "/api/v1/jobs:bulk", string(body))}}
		}
	}
	if len(v.Shown) > bulkShown {
		v.Shown, v.More = v.Shown[:bulkShown], len(v.Shown)-bulkShown
	}
	return nil
}

// changeMany changes the jobs. What is refused does not keep it from the others.
func (s *site) changeMany(p *page, v *bulkView) error {
	bulk := v.request(p)
	if until := p.r.PostForm.Get("until"); until != "" {
		t, err := time.ParseInLocation("2006-01-02T15:04", until, p.zone)
		if err != nil {
			return service.WrongParameter("until", phrase.NotDateTime, phrase.SuchAs.Of("2026-12-24T18:00"))
		}
		bulk.Until = t
	}
	var result client.BulkResult
	var err error
	if v.All {
		if n, wrong := strconv.Atoi(p.r.PostForm.Get("expect")); wrong == nil {
			bulk.Expect = &n
		}
		result, err = s.Service.Bulk.Do(p.ctx(), p.who, bulk)
	} else {
		names := make([]service.Name, 0, len(v.Names))
		for _, full := range v.Names {
			namespace, name := splitName(full)
			names = append(names, service.Name{Namespace: namespace, Name: name})
		}
		result, err = s.Service.Bulk.Each(p.ctx(), p.who, names, bulk, p.once())
	}
	return s.changedMany(p, v, &result, err)
}

// changedMany says what was changed, and what was refused.
func (s *site) changedMany(p *page, v *bulkView, result *client.BulkResult, err error) error {
	if err != nil {
		return err
	}
	if len(result.Errors) == 0 {
		return p.changed(v.Back, "bulk_"+v.Action, result.MayStart, "n", strconv.Itoa(result.Done), "about", result.Group)
	}
	if result.Done > 0 && (v.Action == string(client.BulkPause) || v.Action == string(client.BulkDelete)) {
		v.Undo = undoBulk("bulk_"+v.Action, result.Group)
	}
	v.MayStart = p.mayStart(result.MayStart)
	for i := range result.Errors {
		e := &result.Errors[i]
		e.Detail = p.reason(e.Args.Reason(e.Detail, e.Code))
	}
	v.Done, v.Changed, v.Refused = true, result.Done, result.Errors
	p.site.write(p, http.StatusConflict, "bulk", v)
	return nil
}

// undoBulk is where a form undoes a pause or a deletion of several jobs, by the group of its request.
func undoBulk(said, group string) string {
	return "/jobs/bulk/undo?" + url.Values{"of": {said}, "about": {group}}.Encode()
}

// undoBulk resumes the jobs that a request has paused, or restores what it has deleted.
func (s *site) undoBulk(p *page) error {
	bulk := client.Bulk{Action: client.BulkResume, PausedIn: p.query("about")}
	if p.query("of") == "bulk_delete" {
		bulk = client.Bulk{Action: client.BulkRestore, DeletedIn: p.query("about")}
	}
	v := bulkView{Layout: p.layout("bulk.title", "jobs"), Action: string(bulk.Action), Back: p.back("/jobs")}
	result, err := s.Service.Bulk.Do(p.ctx(), p.who, bulk)
	return s.changedMany(p, &v, &result, err)
}
