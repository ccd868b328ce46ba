package web

import (
	"html/template"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// madeBy says what made a run, as far as that is known: an expression, a person or another run.
func (s *site) madeBy(p *page, r *service.ExplainedRun) (phase, error) {
	creation := phase{Text: p.T("kind." + string(r.Kind))}
	switch r.Kind {
	case job.RunScheduled:
		if words := p.dueBy(r.Definition, r.Scheduled); words != "" {
			creation.Text = p.T("run.by_expression", "words", words)
		}
	case job.RunByHand:
		asked, err := s.startOf(p, &r.Run)
		if err != nil {
			return creation, err
		}
		if asked != nil && asked.Client == "" {
			creation.Text = p.T("run.by_who", "who", clean(asked.Actor))
		} else if asked != nil {
			creation.Text = p.T("run.by_who_with", "who", clean(asked.Actor), "way", p.T("audit.client."+asked.Client))
		}
	case job.RunBackfill:
		creation.Link, creation.Address = p.T("run.backfills"), "/runs?kind="+string(job.RunBackfill)+"&job="+template.URLQueryEscaper(r.Job)
	case job.RunStep:
		creation.Link, creation.Address = p.T("run.see_flow"), selectStep("/runs/"+r.Parent.String())(r.Step)
	case job.RunOn, job.RunAfterEnd, job.RunByFlow:
		if r.Kind == job.RunOn && r.Definition != nil && len(r.Definition.Schedule.On) == 1 {
			creation.Text = p.T("schedule.on", "names", r.Definition.Schedule.On[0].Job)
		}
		if !r.Parent.IsZero() {
			creation.Link, creation.Address = p.T("run.see_upstream"), "/runs/"+r.Parent.String()
		}
	}
	return creation, nil
}

// dueBy says which part of a schedule fell due at a moment, "" if that is not known: a calendar may have
// moved it.
func (p *page) dueBy(definition *job.Job, at time.Time) string {
	if definition == nil {
		return ""
	}
	lang, _ := cron.ParseLang(string(p.lang))
	s := &definition.Schedule
	if len(s.Cron) == 0 && s.Every > 0 {
		return describe("@every "+time.Duration(s.Every).String(), definition, lang)
	}
	for _, expression := range s.Cron {
		alone := *definition
		alone.Schedule = job.Schedule{Cron: []string{expression}, Dialect: s.Dialect, Timezone: s.Timezone, ClockChange: s.ClockChange}
		schedule, err := alone.CompileSchedule(nil)
		if err == nil && schedule.Next(at.Add(-1)).Equal(at) {
			return describe(expression, definition, lang)
		}
	}
	return ""
}

// startSpan is how far the clock that makes the id of a run may be from the clock of the audit.
const startSpan = time.Minute

// startOf returns the change that made a run by hand; nil if the audit does not have it.
func (s *site) startOf(p *page, r *client.Run) (*client.AuditRecord, error) {
	namespace, _ := splitName(r.Job)
	created := r.ID.Time()
	list, err := s.Service.Audit.List(p.ctx(), p.who, client.AuditQuery{
		Namespace: namespace, Object: r.Job, Action: "run." + string(job.RunByHand), From: created.Add(-startSpan), To: created.Add(startSpan), PageSize: auditPage,
	})
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list.Items, func(c client.AuditRecord) bool {
		return c.DetailArgs.Reason(c.Detail, c.DetailCode) == reason.RunOf.Of(r.ID)
	})
	if at < 0 {
		return nil, nil
	}
	return &list.Items[at], nil
}
