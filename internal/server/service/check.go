package service

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/decide/preview"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// checkNext is how many occurrences the check of a job shows.
	checkNext = 10
	// checkProblems is how many problems it lists.
	checkProblems = 100
)

// Check validates a document, in YAML or JSON, explains it and shows what it would change,
// and saves nothing.
func (d *Documents) Check(ctx context.Context, who Caller, request client.Check) (client.Checked, error) {
	checked := client.Checked{Problems: []client.CheckProblem{}, Warnings: []client.CheckProblem{}}
	if err := who.May(Read); err != nil {
		return checked, err
	}
	lang, err := cron.ParseLang(cmp.Or(request.Lang, "en"))
	if err != nil {
		return checked, WrongField("lang", phrase.OfError(err))
	}
	list, err := job.Decode("", []byte(request.Text))
	var problems job.Problems
	if err != nil && !errors.As(err, &problems) {
		return checked, err
	}
	if len(problems) == 0 && len(list) != 1 {
		problems = job.Problems{reason.Problem(job.Problem{Line: 1, Column: 1}, phrase.HoldsDocuments.Of(len(list)), phrase.OneIsChecked)}
	}
	if len(list) != 1 {
		checked.Problems = shown(problems)
		return checked, nil
	}
	document := list[0]
	if document.IsNamed() && who.only() != "" && !document.Says("namespace") {
		document.PutIn(who.only())
	}
	rules, err := d.rules.present(ctx, &document)
	if err != nil {
		return checked, err
	}
	if err := together(problems, check(document, rules)); err != nil && !errors.As(err, &problems) {
		return checked, err
	}
	checked.Problems = shown(problems)
	checked.Kind, checked.Name = document.Kind, document.FullName()
	if len(problems) > 0 {
		return checked, nil
	}
	checked.Valid = true
	checked.Warnings = shown(document.Warnings(rules...))
	return checked, d.explain(ctx, who, document, lang, &checked)
}

// shown returns problems as clients see them.
func shown(problems job.Problems) []client.CheckProblem {
	list := []client.CheckProblem{}
	for _, p := range problems[:min(len(problems), checkProblems)] {
		c := client.CheckProblem{Line: p.Line, Column: p.Column, Path: p.Path, Detail: p.Message.String(), Hint: p.Hint.String()}
		c.Code, c.Args = p.Message.For()
		c.HintCode, c.HintArgs = p.Hint.For()
		list = append(list, c)
	}
	return list
}

// explain adds the meaning and the changes of a valid document.
func (d *Documents) explain(ctx context.Context, who Caller, document job.Document, lang cron.Lang, checked *client.Checked) (err error) {
	if checked.YAML, err = inYAML(document.Bare()); err != nil {
		return err
	}
	if who.sees(document.FullName()) {
		s := &step{document: document, result: client.ApplyResult{Kind: document.Kind, Name: document.FullName()}}
		if err := d.findAll(ctx, []*step{s}); err != nil {
			return err
		}
		checked.Version = s.version
		before := versioned(string(document.Kind)+" "+checked.Name, s.version)
		if s.version == 0 {
			before = nowhere
		}
		if checked.Diff, err = difference(before, s.present, "as edited", document); err != nil {
			return err
		}
	}
	if document.Job == nil {
		return nil
	}
	filled := document.Bare()
	filled.Job = document.Job.WithDefaults(d.rules.defaults)
	if checked.Filled, err = inYAML(filled.Bare()); err != nil {
		return err
	}
	calendars, err := d.rules.calendars(ctx)
	if err != nil {
		return err
	}
	now, err := d.rules.store.Now(ctx)
	if err != nil {
		return err
	}
	explanation, err := preview.Job(filled.Job, calendars, preview.Ask{Lang: lang, From: now, Count: checkNext})
	if err != nil {
		return err
	}
	checked.Preview, checked.Command = previewOf(&explanation), commandOf(filled.Job, explanation.Next)
	live, err := d.liveSessions(ctx)
	if err != nil {
		return err
	}
	if why := placement.Barred(filled.Job, live); !why.IsZero() {
		checked.Warnings = append(checked.Warnings, shown(job.Problems{{Path: "run", Message: why}})...)
	}
	if why := neverDue(&store.Job{Definition: document.Job, Filled: filled.Job}); !why.IsZero() && len(explanation.Next) == 0 {
		checked.Preview.Reason = why.String()
	}
	return nil
}

// commandOf returns what the next run of a job would execute, or the address that it would call,
// where templates decide that. It is "" where they need secrets, or steps of a flow.
func commandOf(j *job.Job, next []time.Time) string {
	if len(next) == 0 {
		return ""
	}
	data := job.TemplateData{Scheduled: next[0], Attempt: 1, Shards: max(1, j.Place.Shards), Namespace: j.Namespace, Name: j.Name, Node: "node"}
	if len(next) > 1 {
		data.Next = next[1]
	}
	spec, err := j.Expand(data)
	if err != nil || commandText(spec) == commandText(&j.Run) {
		return ""
	}
	return commandText(spec)
}

func commandText(r *job.RunSpec) string {
	switch {
	case r.Shell != nil:
		return strings.TrimSpace(r.Shell.Command + " " + strings.Join(r.Shell.Args, " "))
	case r.HTTP != nil:
		return strings.TrimSpace(r.HTTP.Method + " " + r.HTTP.URL)
	}
	return ""
}

// inYAML writes a document in YAML.
func inYAML(d job.Document) (string, error) {
	var b strings.Builder
	err := job.Encode(&b, []job.Document{d}, job.YAML)
	return b.String(), err
}
