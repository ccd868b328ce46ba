package cli

import (
	"bytes"
	"cmp"
	_ "embed" // the page
	"html/template"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/cli/xxltables"
	"github.com/belfry-cron/belfry/internal/server/i18n"
)

//go:embed xxlreport.html
var reportPage string

// reportView is the page of an import. It has no scripts, and its policy allows none.
type reportView struct {
	Lang, Made, Zone          string
	Jobs, Plain, Noted, Wrong int
	Shared                    []reportShared
	Groups                    []reportGroup
	Channels, People          []reportNote
	Then                      []string
	say                       i18n.Lang
	zone                      *time.Location
}

type reportNote struct{ Field, Text string }

// reportShared is a note that concerns many jobs.
type reportShared struct{ Field, Text, Jobs string }

type reportGroup struct {
	Name, Namespace, Addresses string
	Notes                      []reportNote
	Rows                       []reportRow
}

type reportRow struct {
	Class                              string // plain, noted, wrong
	ID                                 int64
	Description, Schedule, Status, Job string
	TheirNext, Next, Problem           string
	Notes                              []reportNote
}

// writeReport writes the page of an import.
func writeReport(env Env, ask xxlImportFlags, plan *xxltables.Plan) error {
	zone, err := cron.LoadZone(ask.zone)
	if err != nil {
		return misused("--zone: %v", err)
	}
	lang := cmp.Or(i18n.Lang(ask.lang), i18n.Chinese)
	v := &reportView{Lang: string(lang), Zone: ask.zone, Jobs: len(plan.Jobs), say: lang, zone: zone.Location()}
	v.Made = v.moment(env.Now())
	v.fill(plan)
	page, err := template.New("report").Funcs(template.FuncMap{"t": v.say.T}).Parse(reportPage)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		return failed("write the report: %v", err)
	}
	if err := os.WriteFile(env.path(ask.report), b.Bytes(), 0o644); err != nil {
		return failed("write the report: %v", err)
	}
	env.tell("%s has the report\n", ask.report)
	return nil
}

func (v *reportView) fill(plan *xxltables.Plan) {
	for _, n := range plan.Shared {
		ids := make([]string, len(n.Jobs))
		for i, id := range n.Jobs {
			ids[i] = strconv.FormatInt(id, 10)
		}
		text := v.say.T("xxlreport.shared", "n", len(n.Jobs), "text", n.Text.In(string(v.say)))
		v.Shared = append(v.Shared, reportShared{printable(n.Field), printable(text), strings.Join(ids, ", ")})
	}
	places := map[int64]int{}
	for i := range plan.Groups {
		g := &plan.Groups[i]
		one := reportGroup{Name: printable(g.AppName), Namespace: g.Namespace, Notes: v.notes(g.Notes)}
		if g.Executors != nil {
			one.Addresses = printable(strings.Join(g.Executors.Addresses, ", "))
		}
		places[g.ID] = len(v.Groups)
		v.Groups = append(v.Groups, one)
	}
	unknown := reportGroup{}
	for i := range plan.Jobs {
		row := v.row(&plan.Jobs[i])
		if at, known := places[plan.Jobs[i].Old.Group]; known {
			v.Groups[at].Rows = append(v.Groups[at].Rows, row)
		} else {
			unknown.Rows = append(unknown.Rows, row)
		}
	}
	if len(unknown.Rows) > 0 {
		v.Groups = append(v.Groups, unknown)
	}
	for _, c := range plan.Channels {
		v.Channels = append(v.Channels, reportNote{c.FullName(), printable(strings.Join(c.To.Mail.To, ", "))})
	}
	v.People = v.notes(plan.People)
	if len(plan.Runs) > 0 {
		v.Then = append(v.Then, v.say.T("xxlreport.runs", "n", len(plan.Runs)))
	}
	v.Then = append(v.Then, v.say.T("xxlreport.number", "n", plan.FirstNumber), v.say.T("xxlreport.paused"))
}

// row is a job on the page.
func (v *reportView) row(p *xxltables.JobPlan) reportRow {
	row := reportRow{
		Class: "plain", ID: p.Old.ID, Description: printable(p.Old.Description),
		Schedule:  printable(p.Schedule()),
		TheirNext: v.moment(p.Old.Next), Problem: printable(p.Problem.In(string(v.say))), Notes: v.notes(p.Notes),
	}
	switch {
	case p.Job == nil:
		row.Class = "wrong"
		v.Wrong++
		return row
	case len(p.Notes) > 0:
		row.Class = "noted"
		v.Noted++
	default:
		v.Plain++
	}
	row.Job, row.Status = p.Job.FullName(), v.say.T("xxlreport.status."+p.Job.Labels[xxltables.StatusLabel])
	if p.Starts() {
		row.Next = v.moment(p.Next)
	}
	if len(p.Versions) > 0 {
		row.Notes = append(row.Notes, reportNote{xxltables.GlueTable, v.say.T("xxlreport.versions", "n", len(p.Versions))})
	}
	return row
}

func (v *reportView) notes(list []xxltables.Note) []reportNote {
	texts := make([]reportNote, len(list))
	for i, n := range list {
		texts[i] = reportNote{printable(n.Field), printable(n.Text.In(string(v.say)))}
	}
	return texts
}

// moment is a time in the zone of the old admin.
func (v *reportView) moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(v.zone).Format("2006-01-02 15:04:05 -07:00")
}
