package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/decide/preview"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// Schedules explains schedules.
type Schedules struct{ rules *rulebook }

// Preview explains a schedule and lists its due times.
func (s *Schedules) Preview(ctx context.Context, who Caller, q client.PreviewQuery) (client.Preview, error) {
	if err := who.May(Read); err != nil {
		return client.Preview{}, err
	}
	var err error
	if q.From.IsZero() {
		if q.From, err = s.rules.store.Now(ctx); err != nil {
			return client.Preview{}, err
		}
	}
	ask := preview.Ask{From: q.From, Count: q.Count}
	if ask.Lang, err = cron.ParseLang(cmp.Or(q.Lang, "en")); err != nil {
		return client.Preview{}, WrongParameter("lang", phrase.OfError(err))
	}
	var of Name
	if q.Job != "" {
		var found bool
		of.Namespace, of.Name, found = strings.Cut(q.Job, "/")
		if !found || of.Namespace == "" || of.Name == "" || strings.Contains(of.Name, "/") {
			return client.Preview{}, WrongParameter("job", phrase.NotFullName)
		}
	}
	var explanation preview.Preview
	switch {
	case (q.Expression == "") == (q.Schedule == ""):
		return client.Preview{}, WrongParameter("expr", phrase.OneExpression)
	case q.Expression != "":
		explanation, err = previewExpression(&q, of, ask)
	default:
		explanation, err = s.previewDocument(ctx, who, &q, of, ask)
	}
	if err != nil {
		return client.Preview{}, err
	}
	return *previewOf(&explanation), nil
}

// previewOf returns a preview as clients see it.
func previewOf(explanation *preview.Preview) *client.Preview {
	return &client.Preview{
		Expression: explanation.Expression, Timezone: explanation.Timezone.Name(), Description: explanation.Description,
		Next: append([]time.Time{}, explanation.Next...), Notes: append([]string{}, slices.Concat(explanation.Warnings, explanation.Notes)...), Reason: explanation.Never,
	}
}

func previewExpression(q *client.PreviewQuery, of Name, ask preview.Ask) (preview.Preview, error) {
	dialect, err := cron.ParseDialect(cmp.Or(q.Dialect, "default"))
	if err != nil {
		return preview.Preview{}, WrongParameter("dialect", phrase.OfError(err))
	}
	change, err := cron.ParseClockChange(cmp.Or(string(q.ClockChange), "vixie"))
	if err != nil {
		return preview.Preview{}, WrongParameter("dst", phrase.OfError(err))
	}
	options := []cron.Option{cron.WithDialect(dialect), cron.WithClockChange(change)}
	var zone *cron.Zone
	if q.Timezone != "" {
		if zone, err = cron.LoadZone(q.Timezone); err != nil {
			return preview.Preview{}, WrongParameter("tz", phrase.OfError(err))
		}
		options = append(options, cron.In(zone))
	}
	if of.Name != "" {
		options = append(options, cron.WithJob(of.Namespace, of.Name))
	}
	explanation, err := preview.Expression(q.Expression, zone, options, ask)
	if err == nil {
		return explanation, nil
	}
	refused := WrongParameter("expr", phrase.OfError(err))
	var parse *cron.ParseError
	if errors.As(err, &parse) {
		e := &refused.Errors[0]
		message, hint := parse.Wording()
		*e = fieldError(*e, reason.Say(message), reason.Say(hint))
		end := min(parse.Pos+parse.Len, len(parse.Expr))
		e.Position = utf8.RuneCountInString(parse.Expr[:parse.Pos]) + 1
		e.Length = utf8.RuneCountInString(parse.Expr[parse.Pos:end])
	}
	if of.Name == "" && preview.MissesJob(err, q.Expression, options) {
		refused.Errors[0].Hint, refused.Errors[0].HintCode = phrase.GiveJob.String(), phrase.GiveJob.Code()
	}
	return explanation, refused
}

// previewDocument explains a whole schedule, as part of a job.
func (s *Schedules) previewDocument(ctx context.Context, who Caller, q *client.PreviewQuery, of Name, ask preview.Ask) (preview.Preview, error) {
	none := preview.Preview{}
	if q.Timezone != "" {
		return none, WrongParameter("tz", phrase.ForExpression, phrase.ZoneInSchedule)
	}
	var schedule map[string]json.RawMessage
	if err := json.Unmarshal([]byte(q.Schedule), &schedule); err != nil {
		return none, WrongParameter("schedule", phrase.NotObject.Of(phrase.Words(strings.TrimPrefix(err.Error(), "json: "))), phrase.SuchAs.Of(`{"cron": "30 2 * * *"}`))
	}
	drawn := of.Name != ""
	if !drawn {
		of = Name{cmp.Or(who.only(), job.DefaultNamespace), "preview"}
	}
	text, err := json.Marshal(map[string]any{
		"namespace": of.Namespace, "name": of.Name, "schedule": json.RawMessage(q.Schedule), "run": map[string]string{"shell": "true"},
	})
	if err != nil {
		return none, fmt.Errorf("preview of a schedule: %w", err)
	}
	draft, err := ReadDraft(text, "")
	if err != nil {
		return none, inSchedule(err)
	}
	d, err := s.rules.accept(ctx, who, Read, draft, job.KindJob)
	if err != nil {
		return none, inSchedule(err)
	}
	for i, text := range d.Job.Schedule.Cron {
		if _, err := cron.ParseSchedule(text); err != nil && !drawn && preview.MissesJob(err, text, nil) {
			path := fmt.Sprintf("schedule.cron[%d]", i)
			refused := WrongParameter("schedule", phrase.OfError(err), phrase.GiveJob)
			refused.Errors[0].Path = path
			return none, refused
		}
	}
	calendars, err := s.rules.calendars(ctx)
	if err != nil {
		return none, err
	}
	explanation, err := preview.Job(d.Job.WithDefaults(s.rules.defaults), calendars, ask)
	return explanation, inSchedule(err)
}

// inSchedule moves the mistakes of a document to the parameter that the document was made
// of.
func inSchedule(err error) error {
	if err == nil {
		return nil
	}
	e := ErrorOf(err)
	if e.Type != client.TypeInvalid && e.Type != client.TypeForbidden {
		return err
	}
	for i := range e.Errors {
		e.Errors[i].Pointer, e.Errors[i].Parameter = "", "schedule"
	}
	return e
}
