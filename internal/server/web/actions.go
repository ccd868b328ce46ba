package web

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// administer is the right to change the server itself.
var administer = service.Administer

// actions are what forms do. Each comes back to the page that has the form.
func (s *site) actions() {
	s.page("POST /jobs/{namespace}/{name}/run", s.runJob)
	s.page("POST /jobs/{namespace}/{name}/pause", s.pauseJob)
	s.page("POST /jobs/{namespace}/{name}/resume", s.resumeJob)
	s.page("POST /jobs/{namespace}/{name}/delete", needs(service.Define, s.deleteJob))
	s.page("POST /jobs/{namespace}/{name}/restore", needs(service.Define, s.restoreJob))
	s.page("POST /jobs/{namespace}/{name}/rollback", needs(service.Define, s.rollBack))
	s.page("POST /examples", s.addExamples)
	s.page("POST /examples/remove", s.removeExamples)
	s.page("POST /runs/{id}/cancel", s.cancelRun)
	s.page("POST /runs/{id}/retry", s.retryRun)
	s.page("POST /runs/retry", s.retryRuns)
	s.page("POST /runs/{id}/steps/{step}/answer", s.answerStep)
	s.page("POST /runs/{id}/signal", s.signalFlow)
	s.page("POST /channels/{namespace}/{name}/test", s.testChannel)
	s.page("POST /channels/{namespace}/{name}/delete", needs(service.Define, s.deleteChannel))
	s.page("POST /notifications/{id}/ack", s.ackNotice)
	s.markActions()
	s.page("POST /shared/windows", needs(service.Define, s.openWindow))
	s.page("POST /shared/windows/{namespace}/{name}/close", needs(service.Define, s.closeWindow))
	s.page("POST /shared/windows/{namespace}/{name}/open", needs(service.Define, s.reopenWindow))
	s.page("POST /shared/hooks", needs(service.Define, s.createHook))
	s.page("POST /nodes/{id}/drain", s.drainNode)
	s.page("POST /nodes/{id}/undrain", s.undrainNode)
	s.page("POST /tokens", s.createToken)
	s.page("POST /badges", needs(service.Define, s.createBadge))
	s.page("POST /badges/revoke", needs(service.Define, s.revokeBadge))
	s.page("POST /sessions/{id}/end", needs(service.Administer, s.endSession))
	s.page("POST /tokens/{name}/revoke", needs(service.Administer, s.revokeToken))
}

// back is where a form comes from.
func (p *page) back(other string) string {
	if address := p.r.PostForm.Get("back"); address != "" {
		return ours(address)
	}
	return other
}

// once is the key of a form that must act once, however often it is sent.
func (p *page) once() string { return p.r.PostForm.Get("once") }

// moment returns the moment in a field of a form, zero for an empty one.
func (p *page) moment(name string) (at time.Time, err error) {
	if text := p.r.PostForm.Get(name); text != "" {
		if at, err = time.ParseInLocation("2006-01-02T15:04", text, p.zone); err != nil {
			return at, service.WrongParameter(name, phrase.NotDateTime, phrase.SuchAs.Of("2026-12-24T18:00"))
		}
	}
	return at, nil
}

// runJob starts a run and goes to its page.
func (s *site) runJob(p *page) error {
	request := client.RunRequest{Params: p.paramsOf(p.r.PostForm), Executor: p.r.PostForm.Get("executor")}
	for name, at := range map[string]*time.Time{"at": &request.At, "previous": &request.Previous, "scheduled": &request.Scheduled} {
		var err error
		if *at, err = p.moment(name); err != nil {
			return err
		}
	}
	if to := strings.TrimSpace(p.r.PostForm.Get("notify")); to != "" {
		request.Notify = &client.RunNotice{URL: to}
	}
	outcome, err := s.Service.Runs.Start(p.ctx(), p.who, p.namedJob(), request, p.once())
	if err != nil {
		return err
	}
	http.Redirect(p.w, p.r, "/runs/"+outcome.Run.ID.String(), http.StatusSeeOther)
	return nil
}

func (s *site) pauseJob(p *page) error {
	until, err := p.moment("until")
	if err != nil {
		return err
	}
	request := client.PauseRequest{Reason: strings.TrimSpace(p.r.PostForm.Get("reason")), Until: until}
	out, err := s.Service.Jobs.Pause(p.ctx(), p.who, p.namedJob(), request, service.Expect{})
	if err != nil {
		return err
	}
	return p.changed(p.back("/jobs/"+p.namedJob().String()), "paused", out.MayStart, "about", p.namedJob().String())
}

func (s *site) resumeJob(p *page) error {
	request := client.ResumeRequest{Missed: job.Missed(p.r.PostForm.Get("missed"))}
	out, err := s.Service.Jobs.Resume(p.ctx(), p.who, p.namedJob(), request, service.Expect{})
	if err != nil {
		return err
	}
	return p.changed(p.back("/jobs/"+p.namedJob().String()), "resumed", out.MayStart, "about", p.namedJob().String())
}

func (s *site) deleteJob(p *page) error {
	if p.r.PostForm.Get("confirm") != p.namedJob().Name {
		return service.WrongParameter("confirm", phrase.NotTheJobName, phrase.TypeName.Of(p.namedJob().Name))
	}
	out, err := s.Service.Jobs.Delete(p.ctx(), p.who, p.namedJob(), strings.TrimSpace(p.r.PostForm.Get("reason")), service.Expect{})
	if err != nil {
		return err
	}
	return p.changed("/jobs", "deleted", out.MayStart, "about", p.namedJob().String())
}

func (s *site) restoreJob(p *page) error {
	if _, err := s.Service.Jobs.Restore(p.ctx(), p.who, p.namedJob()); err != nil {
		return err
	}
	return p.done("/jobs/"+p.namedJob().String(), "restored", "about", p.namedJob().String())
}

func (s *site) rollBack(p *page) error {
	version, err := strconv.ParseInt(p.r.PostForm.Get("version"), 10, 64)
	if err != nil {
		return service.WrongParameter("version", phrase.NotVersionNumber)
	}
	expect := service.Expect{}
	if present, err := strconv.ParseInt(p.r.PostForm.Get("present"), 10, 64); err == nil {
		expect.Versions = []int64{present}
	}
	out, err := s.Service.Jobs.Rollback(p.ctx(), p.who, p.namedJob(), version, expect)
	if err != nil {
		return err
	}
	return p.changed("/jobs/"+p.namedJob().String()+"/definition", "rolled_back", out.MayStart)
}

// namedRun is the run that the address names.
func (p *page) namedRun() (job.ID, error) {
	id, err := job.ParseID(p.r.PathValue("id"))
	if err != nil {
		return id, &service.Error{Type: client.TypeNotFound, Detail: job.Text(p.T("run.no_id", "id", clean(p.r.PathValue("id"))))}
	}
	return id, nil
}

func (s *site) cancelRun(p *page) error {
	id, err := p.namedRun()
	if err != nil {
		return err
	}
	if _, err := s.Service.Runs.Cancel(p.ctx(), p.who, id, strings.TrimSpace(p.r.PostForm.Get("reason"))); err != nil {
		return err
	}
	return p.done(p.back("/runs/"+id.String()), "cancelled")
}

func (s *site) retryRun(p *page) error {
	id, err := p.namedRun()
	if err != nil {
		return err
	}
	outcome, err := s.Service.Runs.Retry(p.ctx(), p.who, id, client.RetryRequest{From: p.r.PostForm["from"], Skip: p.r.PostForm["skip"]}, p.once())
	if err != nil {
		return err
	}
	http.Redirect(p.w, p.r, "/runs/"+outcome.Run.ID.String(), http.StatusSeeOther)
	return nil
}

// retryRuns repeats the last runs of several jobs, and names the first that was not repeated.
func (s *site) retryRuns(p *page) error {
	var runs []job.ID
	for _, text := range p.r.PostForm["run"] {
		id, err := job.ParseID(text)
		if err != nil {
			return service.WrongParameter("run", phrase.NotRunID)
		}
		runs = append(runs, id)
	}
	retries, err := s.Service.Runs.RetryAll(p.ctx(), p.who, runs, p.once())
	if err != nil {
		return err
	}
	s.known.Delete(p.who.Says()) // the list that the next page shows
	if len(retries.Errors) > 0 {
		e := &retries.Errors[0]
		return &service.Error{Type: client.TypeConflict, Detail: job.Text(p.T("run.retried_some", "n", len(retries.Runs), "of", len(runs), "run", e.Run, "why", p.reason(e.Args.Reason(e.Detail, e.Code))))}
	}
	return p.done(p.back("/"), "retried", "n", strconv.Itoa(len(retries.Runs)))
}

func (s *site) drainNode(p *page) error {
	if _, err := s.Service.Nodes.Drain(p.ctx(), p.who, p.r.PathValue("id"), strings.TrimSpace(p.r.PostForm.Get("reason"))); err != nil {
		return err
	}
	return p.done("/nodes", "drained", "about", p.r.PathValue("id"))
}

func (s *site) undrainNode(p *page) error {
	if _, err := s.Service.Nodes.Undrain(p.ctx(), p.who, p.r.PathValue("id")); err != nil {
		return err
	}
	return p.done("/nodes", "undrained", "about", p.r.PathValue("id"))
}

// createToken makes a token and shows it in the answer: it is in no address and no history.
func (s *site) createToken(p *page) error {
	form := p.r.PostForm
	token, err := s.Service.Access.Create(p.ctx(), p.who, client.TokenRequest{
		Name: strings.TrimSpace(form.Get("name")), Role: client.Role(form.Get("role")),
		Namespace: strings.TrimSpace(form.Get("namespace")), ExpiresIn: strings.TrimSpace(form.Get("expires")),
	})
	if err != nil {
		return err
	}
	return s.showSettings(p, http.StatusCreated, &settingsView{MadeName: token.Name, Made: token.Secret})
}

// badgeOf is what a form says that a badge shows: a job, or the jobs with a label.
func (p *page) badgeOf() client.BadgeOf {
	of := client.BadgeOf{Namespace: strings.TrimSpace(p.r.PostForm.Get("namespace"))}
	if shows := strings.TrimSpace(p.r.PostForm.Get("shows")); strings.Contains(shows, "=") {
		of.Label = shows
	} else {
		of.Job = shows
	}
	return of
}

// createBadge makes a badge and shows its link in the answer, as createToken shows a token.
func (s *site) createBadge(p *page) error {
	b, err := s.Service.Badges.Create(p.ctx(), p.who, p.badgeOf())
	if err != nil {
		return err
	}
	row := p.badge(&b)
	return s.showSettings(p, http.StatusCreated, &settingsView{Badge: &row})
}

func (s *site) revokeBadge(p *page) error {
	if _, err := s.Service.Badges.Revoke(p.ctx(), p.who, p.badgeOf()); err != nil {
		return err
	}
	return p.done("/settings", "revoked")
}

func (s *site) revokeToken(p *page) error {
	name := p.r.PathValue("name")
	if name == p.who.Name && p.r.PostForm.Get("own") == "" {
		return service.WrongParameter("name", phrase.IsThisSession, phrase.RevokeByCommand)
	}
	if err := s.Service.Access.Revoke(p.ctx(), p.who, name); err != nil {
		return err
	}
	return p.done("/settings", "revoked")
}

// endSession ends a session of another person or token.
func (s *site) endSession(p *page) error {
	if err := s.Service.Access.EndSession(p.ctx(), p.who, p.r.PathValue("id")); err != nil {
		return err
	}
	return p.done("/settings", "session_ended")
}
