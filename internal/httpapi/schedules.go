package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/preview"
	"github.com/belfry-cron/belfry/job"
)

func (a *api) scheduleRoutes() {
	register(a, http.MethodGet, "/schedules:preview", "preview-schedule", "Say what a schedule means and when it falls due", a.previewSchedule)
}

type previewInput struct {
	Expr     string    `query:"expr" maxLength:"1024" doc:"A cron expression."`
	TZ       string    `query:"tz" maxLength:"64" doc:"The IANA time zone whose clock the expression means. Default: UTC."`
	Dialect  string    `query:"dialect" enum:"default,vixie5,quartz" default:"default" doc:"The grammar of the expression."`
	DST      string    `query:"dst" enum:"vixie,literal,skip_once,shift_once,skip_last" default:"vixie" doc:"What the expression does where the clock changes."`
	Schedule string    `query:"schedule" maxLength:"32768" doc:"Instead of an expression: all that a job has as its schedule, in JSON."`
	Job      string    `query:"job" maxLength:"257" doc:"The job, namespace/name, that H and ~ draw their values for, and in whose namespace calendars are."`
	Lang     string    `query:"lang" enum:"en,zh" default:"en" doc:"The language of the words."`
	From     time.Time `query:"from" doc:"The occurrences after this instant. Default: now."`
	N        int       `query:"n" minimum:"1" maximum:"1000" default:"10" doc:"How many occurrences."`
}

type previewOutput struct {
	Body client.Preview
}

func (a *api) previewSchedule(ctx context.Context, in *previewInput) (*previewOutput, error) {
	now, err := a.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	ask := preview.Ask{From: cmp.Or(in.From, now), Count: in.N}
	if ask.Lang, err = cron.ParseLang(in.Lang); err != nil {
		return nil, wrongParameter("lang", err.Error(), "")
	}
	namespace, name, found := strings.Cut(in.Job, "/")
	if in.Job != "" && (!found || namespace == "" || name == "" || strings.Contains(name, "/")) {
		return nil, wrongParameter("job", "is not of the form namespace/name", "")
	}
	var said preview.Preview
	switch {
	case (in.Expr == "") == (in.Schedule == ""):
		return nil, wrongParameter("expr", "one of expr and schedule is wanted", "")
	case in.Expr != "":
		said, err = previewExpression(in, namespace, name, ask)
	default:
		said, err = a.previewDocument(ctx, in, namespace, name, ask)
	}
	if err != nil {
		return nil, err
	}
	return &previewOutput{client.Preview{
		Expression: said.Expression, Timezone: said.Timezone.Name(), Description: said.Description,
		Next: append([]time.Time{}, said.Next...), Notes: append([]string{}, said.Notes...), Reason: said.Never,
	}}, nil
}

func previewExpression(in *previewInput, namespace, name string, ask preview.Ask) (preview.Preview, error) {
	// The route has checked that they are known.
	dialect, _ := cron.ParseDialect(in.Dialect)
	change, _ := cron.ParseClockChange(in.DST)
	options := []cron.Option{cron.WithDialect(dialect), cron.WithClockChange(change)}
	var zone *cron.Zone
	if in.TZ != "" {
		var err error
		if zone, err = cron.LoadZone(in.TZ); err != nil {
			return preview.Preview{}, wrongParameter("tz", err.Error(), "")
		}
		options = append(options, cron.In(zone))
	}
	if name != "" {
		options = append(options, cron.WithJob(namespace, name))
	}
	said, err := preview.Expression(in.Expr, zone, options, ask)
	if err == nil {
		return said, nil
	}
	refused := wrongParameter("expr", err.Error(), "")
	var parse *cron.ParseError
	if errors.As(err, &parse) {
		e := &refused.Errors[0]
		e.Detail, e.Hint = preview.Wording(parse), parse.Hint
		end := min(parse.Pos+parse.Len, len(parse.Expr))
		e.Position = utf8.RuneCountInString(parse.Expr[:parse.Pos]) + 1
		e.Length = utf8.RuneCountInString(parse.Expr[parse.Pos:end])
	}
	if name == "" && preview.MissesJob(err, in.Expr, options) {
		refused.Errors[0].Hint = "give the job with job=namespace/name"
	}
	return said, refused
}

// previewDocument is about all of a schedule, as if a job had it.
func (a *api) previewDocument(ctx context.Context, in *previewInput, namespace, name string, ask preview.Ask) (preview.Preview, error) {
	none := preview.Preview{}
	if in.TZ != "" {
		return none, wrongParameter("tz", "is for expr", "a schedule has its timezone in itself")
	}
	var schedule map[string]json.RawMessage
	if err := json.Unmarshal([]byte(in.Schedule), &schedule); err != nil {
		return none, wrongParameter("schedule", "is not an object in JSON: "+strings.TrimPrefix(err.Error(), "json: "), `such as {"cron": "30 2 * * *"}`)
	}
	drawn := name != ""
	if !drawn {
		namespace, name = cmp.Or(caller(ctx).Namespace, job.DefaultNamespace), "preview"
	}
	text, err := json.Marshal(map[string]any{
		"namespace": namespace, "name": name, "schedule": json.RawMessage(in.Schedule), "run": map[string]string{"shell": "true"},
	})
	if err != nil {
		return none, fmt.Errorf("preview of a schedule: %w", err)
	}
	d, err := a.read(ctx, client.Document{RawMessage: text}, job.KindJob)
	if err != nil {
		return none, inSchedule(err)
	}
	for i, text := range d.Job.Schedule.Cron {
		if _, err := cron.ParseSchedule(text); err != nil && !drawn && preview.MissesJob(err, text, nil) {
			path := fmt.Sprintf("schedule.cron[%d]", i)
			refused := wrongParameter("schedule", err.Error(), "give the job with job=namespace/name")
			refused.Errors[0].Path = path
			return none, refused
		}
	}
	calendars, err := a.calendars(ctx)
	if err != nil {
		return none, err
	}
	said, err := preview.Job(d.Job.WithDefaults(a.Defaults), calendars, ask)
	return said, inSchedule(err)
}

// inSchedule says of mistakes in a document that they are in the parameter.
func inSchedule(err error) error {
	var mistakes job.Problems
	if errors.As(err, &mistakes) {
		err = invalid(mistakes, "")
	}
	var p *problem
	if errors.As(err, &p) {
		for i := range p.Errors {
			p.Errors[i].Pointer, p.Errors[i].Parameter = "", "schedule"
		}
	}
	return err
}
