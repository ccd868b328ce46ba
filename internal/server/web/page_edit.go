package web

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/i18n"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// editView is the editor: the document as text, and its most used fields as a form. The two
// are kept in step by the server, which puts changed fields into the text.
type editView struct {
	*Layout
	Of       string // the job that is edited, "" for a new one
	Address  string // that the form is sent to
	Discard  string
	Present  int64 // the version that the change is for
	Text     string
	Lines    int
	Groups   []editGroup
	Problems []editProblem
	Graph    template.HTML // of a flow
	Words    string        // the schedule
	Next     []nextRow
	Notes    []string
	Command  string // that the next run executes, where templates decide that
	Diff     []diffLine
	IsSame   bool
	Conflict []diffLine // concurrent changes by others
	Newer    int64
	By       string // who has made the version that is changed
	At       When
}

// editGroup is some fields of the form: the name of a folded group is in Fold, of others in Title. Fields of
// other kinds than the chosen one are hidden as long as they are empty.
type editGroup struct {
	ID, Title, Fold string
	Summary         string // what a folded group says
	IsWarning       bool   // its summary does
	Open            bool   // though it is folded
	Kinds           []choice
	Fields          []editField
}

// editField is a field of the form, with its value in the document.
type editField struct {
	Path, Label, Value string
	Kind               string // of schedule or work that has the field; "" for each
	Example            string
	Mono, Wide         bool
	Rows               int  // of a field of several lines
	Elsewhere          bool // the form cannot show what the document has
	Choices            []choice
	Problem, Hint      string
	First              string // what it begins with when its kind is chosen
}

// IsSet reports whether the field says something, and is shown whatever kind is chosen.
func (f *editField) IsSet() bool { return f.Value != "" || f.Elsewhere || f.Problem != "" }

type editProblem struct {
	Line, Column int
	Path         string
	Text, Hint   string
}

type nextRow struct {
	At, In When
	UTC    string
}

// diffLine is a line of a difference, with its number in the newer text; 0 for none.
type diffLine struct {
	Class, Text string
	Number      int
}

// formField is a field that the form has: of a group, with one of some values where it has values.
type formField struct {
	group, path string
	as          fieldForm
	mono, area  bool
	wide        bool // the field is as wide as two
	values      func() []string
	words       string // of the values in the catalogue; "" for the values themselves
	example     string
	first       string   // what the field begins with when its kind is chosen
	work        job.Work // that has the field; "" for each
	is          string   // the kind of schedule that has the field; "" for each
}

// The groups of the form. More about when is folded while it is empty; where and what goes wrong always are,
// beside a summary, unless they have a mistake.
const (
	groupWhen     = "when"
	groupWhenMore = "when_more"
	groupWhat     = "what"
	groupWhere    = "where"
	groupWrong    = "wrong"
)

func truths() []string { return []string{"true", "false"} }

// editFields are the fields of the form, in the order of a document.
var editFields = []formField{
	{path: "name", mono: true}, {path: "namespace", mono: true}, {path: "title", wide: true}, {path: "description", wide: true},
	{path: "labels", as: asPairs, mono: true, wide: true, example: "team=shop"},
	{path: "params", as: asYAML, mono: true, area: true, wide: true, example: "day: {type: date}\nrows: {type: int, default: 100, min: 1}"},
	{group: groupWhen, is: "cron", path: "schedule.cron", as: asList, mono: true, wide: true, example: "30 2 * * MON-FRI"},
	{group: groupWhen, is: "every", path: "schedule.every", mono: true, example: "15m"}, {group: groupWhen, is: "after_end", path: "schedule.after_end", mono: true, example: "5m"},
	{group: groupWhen, is: "at", path: "schedule.at", as: asList, mono: true, wide: true, example: "2027-01-31T09:00:00+01:00"},
	{group: groupWhen, is: "on", path: "schedule.on", as: asList, mono: true, wide: true, example: "shop/price-import succeeded"},
	{group: groupWhen, path: "schedule.timezone"}, {group: groupWhen, path: "schedule.clock_change", mono: true, values: job.ClockChange("").Values},
	{group: groupWhen, path: "schedule.only", as: asList, mono: true, example: "mon-fri"}, {group: groupWhen, path: "schedule.except", as: asList, mono: true, example: "holidays"},
	{group: groupWhenMore, path: "schedule.off_day", values: job.OffDay("").Values, words: "schedule.off_day."}, {group: groupWhenMore, path: "schedule.boot", as: asScalar, values: truths, words: "edit.truth."},
	{group: groupWhenMore, path: "schedule.spread", mono: true, example: "10m"}, {group: groupWhenMore, path: "schedule.jitter", mono: true, example: "30s"},
	{group: groupWhenMore, path: "schedule.start", mono: true, example: "2027-01-01T00:00:00Z"}, {group: groupWhenMore, path: "schedule.end", mono: true, example: "2027-12-31T00:00:00Z"},
	{group: groupWhenMore, path: "schedule.max_runs", as: asScalar, mono: true, example: "10"},
	{group: groupWhat, path: "run.container.image", mono: true, wide: true, work: job.WorkContainer, example: "alpine:3.20"},
	{group: groupWhat, path: "run.container.shell", mono: true, area: true, wide: true, work: job.WorkContainer},
	{group: groupWhat, path: "run.container.command", as: asList, mono: true, work: job.WorkContainer}, {group: groupWhat, path: "run.container.args", as: asList, mono: true, work: job.WorkContainer},
	{group: groupWhat, path: "run.container.env", as: asPairs, mono: true, work: job.WorkContainer, example: "DB_HOST=db.example.com"}, {group: groupWhat, path: "run.container.mounts", as: asList, mono: true, work: job.WorkContainer, example: "/data/in:/in:ro"},
	{group: groupWhat, path: "run.container.user", mono: true, work: job.WorkContainer, example: "1000:1000"}, {group: groupWhat, path: "run.container.network", mono: true, work: job.WorkContainer, example: "none"},
	{group: groupWhat, path: "run.kubernetes.image", mono: true, wide: true, work: job.WorkKubernetes, example: "alpine:3.20"},
	{group: groupWhat, path: "run.kubernetes.shell", mono: true, area: true, wide: true, work: job.WorkKubernetes},
	{group: groupWhat, path: "run.kubernetes.command", as: asList, mono: true, work: job.WorkKubernetes}, {group: groupWhat, path: "run.kubernetes.args", as: asList, mono: true, work: job.WorkKubernetes},
	{group: groupWhat, path: "run.kubernetes.env", as: asPairs, mono: true, work: job.WorkKubernetes, example: "DB_HOST=db.example.com"}, {group: groupWhat, path: "run.kubernetes.secret_env", as: asPairs, mono: true, work: job.WorkKubernetes, example: "DB_PASSWORD=shop-db/password"},
	{group: groupWhat, path: "run.kubernetes.cluster", mono: true, work: job.WorkKubernetes, example: "default"}, {group: groupWhat, path: "run.kubernetes.namespace", mono: true, work: job.WorkKubernetes},
	{group: groupWhat, path: "run.kubernetes.user", mono: true, work: job.WorkKubernetes, example: "1000:1000"}, {group: groupWhat, path: "run.kubernetes.service_account", mono: true, work: job.WorkKubernetes},
	{group: groupWhat, path: "run.shell", mono: true, area: true, wide: true, work: job.WorkShell},
	{group: groupWhat, path: "run.dir", mono: true, work: job.WorkShell}, {group: groupWhat, path: "run.user", mono: true, work: job.WorkShell},
	{group: groupWhat, path: "run.http.url", mono: true, wide: true, work: job.WorkHTTP}, {group: groupWhat, path: "run.http.method", mono: true, work: job.WorkHTTP, example: "GET"},
	{group: groupWhat, path: "run.http.expect", as: asList, mono: true, work: job.WorkHTTP, example: "2xx"}, {group: groupWhat, path: "run.http.body", mono: true, area: true, wide: true, work: job.WorkHTTP},
	{group: groupWhat, path: "run.handler", mono: true, wide: true, work: job.WorkHandler},
	{group: groupWhat, path: "run.flow.steps", as: asYAML, mono: true, area: true, wide: true, work: job.WorkFlow, first: "- name: first\n  run: {shell: echo first}\n- name: second\n  needs: first\n  run: {shell: echo second}"},
	{group: groupWhat, path: "run.xxl.group", mono: true, work: job.WorkXXL, example: "order-executor"}, {group: groupWhat, path: "run.xxl.handler", mono: true, work: job.WorkXXL, example: "settleHandler"},
	{group: groupWhat, path: "run.xxl.param", mono: true, wide: true, work: job.WorkXXL}, {group: groupWhat, path: "run.xxl.block", mono: true, values: job.Block("").Values, work: job.WorkXXL},
	{group: groupWhat, path: "run.external.grace", mono: true, work: job.WorkExternal, first: "5m"},
	{group: groupWhere, path: "place.labels", as: asPairs, mono: true, wide: true, example: "zone=de"},
	{group: groupWhere, path: "place.strategy", mono: true, values: job.Strategy("").Values}, {group: groupWhere, path: "place.shards", as: asScalar, mono: true, example: "4"},
	{group: groupWrong, path: "policy.timeout", mono: true, example: "30m"}, {group: groupWrong, path: "policy.retry.attempts", as: asScalar, mono: true, example: "2"}, {group: groupWrong, path: "policy.retry.backoff", mono: true, example: "1m"},
	{group: groupWrong, path: "policy.overlap", values: job.Overlap("").Values, words: "policy.overlap."}, {group: groupWrong, path: "policy.missed", values: job.Missed("").Values, words: "policy.missed."},
	{group: groupWrong, path: "policy.expect.finish_within", mono: true, example: "45m"},
}

// containers are the kinds of work with an image, whose other fields may stand beside it.
var containers = []job.Work{job.WorkContainer, job.WorkKubernetes}

// in returns where a document has the field: what stands beside run.shell may be a part of it, and what is part
// of a container may stand beside it.
func (f *formField) in(text string) string {
	if slices.Contains(containers, f.work) {
		of := "run." + string(f.work)
		name := strings.TrimPrefix(f.path, of+".")
		container := nodeAt(text, of)
		switch {
		case container == nil || nodeAt(text, f.path) != nil:
		case name == "image" && container.Kind == yaml.ScalarNode:
			return of
		case slices.Contains(besideContainer, name) && nodeAt(text, "run."+name) != nil:
			return "run." + name
		}
		return f.path
	}
	if name, ok := strings.CutPrefix(f.path, "run."); ok && f.work == job.WorkShell && name != "shell" && nodeAt(text, "run.shell."+name) != nil {
		return "run.shell." + name
	}
	return f.path
}

// besideContainer are the fields of a container that may stand beside it.
var besideContainer = []string{"shell", "env", "user"}

// isBeside reports whether what the field seems to have in a document belongs to a container.
func (f *formField) isBeside(text string) bool {
	return f.work == job.WorkShell && slices.ContainsFunc(containers, func(w job.Work) bool { return nodeAt(text, "run."+string(w)) != nil })
}

// kind is the kind of schedule or work that has the field.
func (f *formField) kind() string { return cmp.Or(f.is, string(f.work)) }

// formWorks are the kinds of work that the form can say.
var formWorks = []string{string(job.WorkShell), string(job.WorkContainer), string(job.WorkKubernetes), string(job.WorkHTTP), string(job.WorkFlow), string(job.WorkXXL), string(job.WorkExternal), string(job.WorkHandler)}

// formSchedules are the kinds of schedules; a job without any runs by hand.
var formSchedules = []string{"cron", "every", "after_end", "at", "on", "hand"}

// isOf reports whether the form has the field for a kind of work: it has no work that only the document can say.
func (f *formField) isOf(work job.Work) bool {
	return f.work == "" || work == "" || slices.Contains(formWorks, string(work))
}

// newJob is what a new job begins with.
const newJob = "name: my-job\nschedule:\n  cron: \"0 3 * * *\"\n  timezone: %s\nrun:\n  shell: |\n    echo hello\n"

// newFlow is what a new flow begins with: it has no field of the form that a command would be in.
const newFlow = `name: my-flow
schedule:
  cron: "0 2 * * *"
  timezone: %s
run:
  flow:
    steps:
      - name: extract
        run:
          shell: echo '{"rows":12}' > "$BELFRY_RESULT"
      - name: load
        needs: extract
        run:
          shell: echo loaded {{ .Steps.extract.Result.rows }} rows
      - name: publish
        needs: load
        wait:
          approval: publish {{ .Steps.extract.Result.rows }} rows?
          for: 12h
    finally:
      - name: tell
        run:
          shell: echo the flow has ended
`

// editNext is how many occurrences the editor shows.
const editNext = 5

func (s *site) newJobPage(p *page) error {
	text := fmt.Sprintf(newJob, p.zone)
	if p.query("flow") != "" {
		text = fmt.Sprintf(newFlow, p.zone)
	}
	if namespace, name := splitName(p.query("from")); namespace != "" {
		d, _, err := s.Service.Jobs.Get(p.ctx(), p.who, service.Name{Namespace: namespace, Name: name}, false)
		if err != nil {
			return err
		}
		if text, err = yamlOf(d); err != nil {
			return err
		}
		if text, err = setField(text, "name", asText, name+"-copy"); err != nil {
			return err
		}
	}
	if line := p.query("line"); line != "" {
		text = fromCrontab(line, p.zone.String())
	}
	return s.showEdit(p, http.StatusOK, "", 0, text)
}

func (s *site) editJob(p *page) error {
	d, version, err := s.Service.Jobs.Get(p.ctx(), p.who, p.namedJob(), false)
	if err != nil {
		return err
	}
	text, err := yamlOf(d)
	if err != nil {
		return err
	}
	return s.showEdit(p, http.StatusOK, p.namedJob().String(), version, text)
}

// yamlOf writes a document as its author would, without what the server keeps.
func yamlOf(d client.Document) (string, error) {
	list, err := job.Decode("", d.RawMessage)
	if err != nil {
		return "", err
	}
	for i := range list {
		list[i] = list[i].Bare()
	}
	var b bytes.Buffer
	err = job.Encode(&b, list, job.YAML)
	return b.String(), err
}

// saveJob checks a document, or saves it.
func (s *site) saveJob(p *page) error {
	form := p.r.PostForm
	document := unix(form.Get("document"))
	text := document
	for i := range editFields {
		f := &editFields[i]
		was, is := unix(form.Get("was."+f.path)), unix(form.Get("field."+f.path))
		if !form.Has("field."+f.path) || was == is {
			continue
		}
		changed, err := setField(text, f.in(document), f.as, is) // a change of the kind removes fields first
		if err != nil {
			break // the text is no document yet; its problem is shown
		}
		text = changed
	}
	of, present := form.Get("of"), int64(0)
	_, _ = fmt.Sscan(form.Get("present"), &present)
	// After a conflict its author saves over the version that he has seen by then.
	over, wrong := strconv.ParseInt(form.Get("over"), 10, 64)
	if wrong == nil {
		present = over
	}
	if form.Get("action") != "save" && wrong != nil {
		return s.showEdit(p, http.StatusOK, of, present, text)
	}
	draft, err := service.ReadDraft([]byte(text), "")
	if err == nil && len(draft.Unread) > 0 {
		return s.showEdit(p, http.StatusUnprocessableEntity, of, present, text)
	}
	if err != nil {
		return s.showRefused(p, of, present, text, err)
	}
	var saved service.Changed
	if of == "" {
		if draft.Job == nil {
			return service.WrongParameter("document", phrase.NotAJob)
		}
		saved, err = s.Service.Jobs.Create(p.ctx(), p.who, draft)
	} else {
		namespace, name := splitName(of)
		saved, err = s.Service.Jobs.Put(p.ctx(), p.who, service.Name{Namespace: namespace, Name: name}, draft, service.Expect{Versions: []int64{present}})
	}
	if err != nil {
		return s.showRefused(p, of, present, text, err)
	}
	words := "saved"
	if saved.Result == client.Unchanged {
		words = "unchanged"
	}
	j, err := saved.Job.Job()
	if err != nil {
		return err
	}
	return p.changed("/jobs/"+j.FullName(), words, saved.MayStart)
}

// unix writes the lines of a form as documents have them.
func unix(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// showEdit answers with the editor.
func (s *site) showEdit(p *page, status int, of string, present int64, text string) error {
	v, err := s.editView(p, of, present, text)
	if err != nil {
		return err
	}
	s.write(p, status, "edit", v)
	return nil
}

// showRefused answers with the editor and why the document was not saved.
func (s *site) showRefused(p *page, of string, present int64, text string, refused error) error {
	v, err := s.editView(p, of, present, text)
	if err != nil {
		return err
	}
	e := service.ErrorOf(refused)
	if e.Type == client.TypeInternal {
		return refused
	}
	if len(v.Problems) == 0 {
		v.Problems = append(v.Problems, p.refusals(e)...)
	}
	if e.Type == client.TypeChanged && e.Version > 0 && of != "" {
		namespace, name := splitName(of)
		changed, err := s.Service.Jobs.Revision(p.ctx(), p.who, service.Name{Namespace: namespace, Name: name}, e.Version, present)
		if err != nil {
			return err
		}
		v.Conflict, v.Newer = diffLines(changed.Diff), e.Version
	}
	status, ok := statuses[e.Type]
	if !ok {
		status = http.StatusInternalServerError
	}
	s.write(p, status, "edit", v)
	return nil
}

// mistakes are the problems of a document for an editor.
func (p *page) mistakes(problems job.Problems) (list []editProblem) {
	for _, m := range problems {
		list = append(list, editProblem{m.Line, m.Column, m.Path, p.reason(m.Message), p.reason(m.Hint)})
	}
	return list
}

// refusals say why the service refused a document.
func (p *page) refusals(e *service.Error) (list []editProblem) {
	for _, f := range e.Errors {
		text, hint := p.mistake(f)
		list = append(list, editProblem{Path: f.Path, Text: text, Hint: hint})
	}
	if len(e.Errors) == 0 {
		list = []editProblem{{Text: p.reason(e.Detail), Hint: p.reason(e.Hint)}}
	}
	return list
}

func (s *site) editView(p *page, of string, present int64, text string) (editView, error) {
	v := editView{Of: of, Present: present, Text: text, Lines: editorRows(text), Address: "/jobs/new", Discard: "/jobs"}
	if of == "" {
		v.Layout = p.layout("edit.new", "jobs")
	} else {
		v.Layout = p.layout("edit.of", "jobs", "name", of)
		v.Address, v.Discard = "/jobs/"+of+"/edit", "/jobs/"+of
		namespace, name := splitName(of)
		last, err := s.Service.Jobs.Revisions(p.ctx(), p.who, service.Name{Namespace: namespace, Name: name}, 1, "")
		if err != nil {
			return v, err
		}
		if len(last.Items) > 0 && last.Items[0].Version == present {
			v.By, v.At = clean(last.Items[0].Actor), p.minute(last.Items[0].Changed)
		}
		v.Events = "kind=job&job=" + template.URLQueryEscaper(of)
	}
	v.Layout.Namespace = ""
	v.Commands = []Command{{p.T("command.shell"), "belfry apply -f job.yaml"}}
	list, err := job.Decode("", []byte(text))
	var problems job.Problems
	if err != nil && !errors.As(err, &problems) {
		return v, err
	}
	if len(list) == 1 && list[0].Job != nil {
		if err := list[0].Validate(job.Now(p.now)); err != nil {
			var more job.Problems
			if errors.As(err, &more) && len(problems) == 0 {
				problems = more
			}
		}
	}
	v.Problems = p.mistakes(problems)
	work := job.WorkShell // as long as a document cannot be read, it keeps its fields
	if len(list) == 1 && list[0].Job != nil {
		work = list[0].Job.Run.Work()
	}
	for i := range editFields {
		f := &editFields[i]
		if !f.isOf(work) {
			continue
		}
		if n := len(v.Groups); n == 0 || v.Groups[n-1].ID != f.group {
			v.Groups = append(v.Groups, p.editGroup(f.group))
		}
		group := &v.Groups[len(v.Groups)-1]
		field := p.editField(f, text, v.Problems)
		group.Open = group.Open || field.Problem != "" || group.ID == groupWhenMore && field.IsSet()
		group.Fields = append(group.Fields, field)
	}
	for i := range v.Groups {
		p.chooseKind(&v.Groups[i], work)
		if len(list) == 1 && list[0].Job != nil {
			s.summarize(p, &v.Groups[i], list[0].Job)
		}
	}
	if len(problems) > 0 || len(list) != 1 || list[0].Job == nil {
		return v, nil
	}
	return v, s.explainEdit(p, &v, list[0])
}

// summarize says what is in a folded group.
func (s *site) summarize(p *page, group *editGroup, j *job.Job) {
	j = j.WithDefaults(job.Defaults{})
	switch group.ID {
	case groupWhere:
		suiting, taking := service.Suiting(s.frame(p.ctx(), p.who, frameFor).list, j)
		if taking > 0 && !j.Run.IsReported() {
			group.Summary, group.IsWarning = p.T("edit.suiting", "n", suiting, "of", taking), suiting == 0
		}
	case groupWrong:
		var parts []string
		for _, f := range p.policy(j) {
			if !f.Default && f.Name != p.T("job.owner") {
				parts = append(parts, f.Value)
			}
		}
		group.Summary = cmp.Or(strings.Join(parts, " · "), p.T("edit.default"))
	}
}

// editorRows is how many lines of a document the editor shows at once: what it means is in view below it.
func editorRows(text string) int { return min(strings.Count(text, "\n")+2, editorRowsMax) }

const editorRowsMax = 24

// chooseKind offers the kinds of a group, and chooses the one of the document.
func (p *page) chooseKind(group *editGroup, work job.Work) {
	kinds, chosen := formWorks, cmp.Or(string(work), string(job.WorkShell))
	switch group.ID {
	case groupWhat:
	case groupWhen:
		kinds, chosen = formSchedules, "hand"
		for i := range group.Fields {
			if f := &group.Fields[i]; f.Kind != "" && f.IsSet() {
				chosen = f.Kind
				break
			}
		}
	default:
		return
	}
	for _, kind := range kinds {
		group.Kinds = append(group.Kinds, choice{Name: p.T("edit.kind." + kind), Value: kind, Current: kind == chosen})
	}
}

func (p *page) editGroup(id string) editGroup {
	group := editGroup{ID: id}
	switch id {
	case "":
	case groupWhenMore, groupWhere, groupWrong:
		group.Fold = p.T("edit.group." + id)
	default:
		group.Title = p.T("edit.group." + id)
	}
	return group
}

// editField is a field with its value in a document, and the problem that it has there.
func (p *page) editField(f *formField, text string, problems []editProblem) editField {
	path := f.in(text)
	value, ok := fieldOf(text, path, f.as)
	if f.isBeside(text) {
		value, ok = "", true
	}
	field := editField{Path: f.path, Label: p.T("edit." + f.path), Value: value, Kind: f.kind(), Mono: f.mono, Wide: f.wide, Example: f.example, First: f.first, Elsewhere: !ok}
	switch {
	case f.area:
		field.Rows = areaRows
		if f.as == asYAML {
			field.Rows = min(max(2, strings.Count(value, "\n")+1), editorRowsMax)
		}
	case f.as == asList || f.as == asPairs:
		field.Rows = min(strings.Count(value, "\n")+1, listRows)
	}
	if f.values != nil && ok {
		field.Choices = p.choices(f, value)
	}
	if !ok {
		field.Example = p.T("edit.elsewhere")
	}
	switch {
	case f.path == "schedule.clock_change" && i18n.Has("edit.clock."+cmp.Or(value, string(job.ClockVixie))):
		field.Hint = p.T("edit.clock." + cmp.Or(value, string(job.ClockVixie)))
	case f.path == "schedule.timezone" && value != "":
		if zone, err := cron.LoadZone(value); err == nil {
			field.Hint = p.T("edit.now", "at", p.now.In(zone.Location()).Format("15:04"), "offset", p.now.In(zone.Location()).Format("UTC-07:00"))
		}
	}
	for _, problem := range problems {
		if problem.Path == path || strings.HasPrefix(problem.Path, path+"[") || strings.HasPrefix(problem.Path, path+".") {
			field.Problem = strings.TrimSpace(problem.Text + " " + problem.Hint)
		}
	}
	return field
}

// areaRows is how many lines of a command the form shows, and listRows of a list at most.
const (
	areaRows = 4
	listRows = 8
)

// choices are the values of a field: first the default, which leaves it out of the document.
func (p *page) choices(f *formField, value string) []choice {
	list := []choice{{Name: p.T("edit.default")}}
	values := f.values()
	if value != "" && !slices.Contains(values, value) {
		values = append(values, value) // as it was typed into the document
	}
	for _, v := range values {
		name := v
		if key := f.words + v; f.words != "" && i18n.Has(key) {
			name = p.T(key)
		}
		list = append(list, choice{Name: name, Value: v, Current: v == value})
	}
	return list
}

// crowd says how many jobs start in the minute of the next run, and which minutes near are quieter.
func (s *site) crowd(p *page, v *editView, next []time.Time) error {
	starts, quiet, err := s.crowdOf(p, next)
	if err != nil || starts < crowdedFrom {
		return err
	}
	text := p.T("edit.crowd", "n", starts)
	if len(quiet) > 0 {
		text += " " + p.T("edit.quieter", "when", clocks(quiet))
	}
	v.Notes = append(v.Notes, text)
	return nil
}

// crowdedFrom is how many starts in a minute the editor speaks of.
const crowdedFrom = 3

// quietMinute is a minute in which few jobs start.
type quietMinute struct {
	At     When
	Starts int
}

// clocks lists minutes by their times of the day.
func clocks(list []quietMinute) string {
	var texts []string
	for _, m := range list {
		texts = append(texts, m.At.Text)
	}
	return strings.Join(texts, ", ")
}

// crowdOf counts the starts in the minute of the first of the next runs of a job, and returns quieter
// minutes near it in which the job itself does not start.
func (s *site) crowdOf(p *page, next []time.Time) (starts int, quiet []quietMinute, err error) {
	if len(next) == 0 {
		return 0, nil, nil
	}
	minute := next[0].Truncate(time.Minute)
	from := earlier(minute, later(minute.Add(-nearMinutes*time.Minute), p.now.Truncate(time.Minute).Add(time.Minute))) // this minute is nearly over
	load, err := s.Service.Load.Ahead(p.ctx(), p.who, client.LoadQuery{From: from, To: minute.Add((nearMinutes + 1) * time.Minute), Step: time.Minute})
	if err != nil {
		if service.ErrorOf(err).Type == client.TypeInvalid {
			return 0, nil, nil // it is farther ahead than starts are counted
		}
		return 0, nil, err
	}
	at := int(minute.Sub(load.From) / time.Minute)
	if at < 0 || at >= len(load.Starts) {
		return 0, nil, nil
	}
	own := map[int]bool{}
	for _, t := range next {
		own[int(t.Sub(load.From)/time.Minute)] = true
	}
	for _, i := range quieter(load.Starts, at, own) {
		t := load.From.Add(time.Duration(i) * time.Minute)
		m := quietMinute{p.at(t), load.Starts[i]}
		m.At.Text = t.In(p.zone).Format("15:04") // on the day of the run
		quiet = append(quiet, m)
	}
	return load.Starts[at], quiet, nil
}

// explainEdit says what a valid document means and would change.
func (s *site) explainEdit(p *page, v *editView, document job.Document) error {
	j := document.Job
	v.Words = p.schedule(j)
	if j.Run.IsFlow() {
		v.Graph = p.graphOfPlan(planOf(j.Run.Flow), func(string) string { return "" })
	}
	checked, err := s.Service.Documents.Check(p.ctx(), p.who, client.Check{Text: v.Text, Lang: string(p.lang)})
	if err == nil && checked.Preview != nil {
		next := checked.Preview.Next
		v.Notes, v.Command = checked.Preview.Notes, clean(checked.Command)
		for _, t := range next[:min(len(next), editNext)] {
			v.Next = append(v.Next, nextRow{At: p.minute(t), In: p.relative(t), UTC: t.UTC().Format("15:04 UTC")})
		}
		if len(next) > 0 {
			if err := s.crowd(p, v, next); err != nil {
				return err
			}
		}
	}
	d, err := client.DocumentOf(document)
	if err != nil {
		return err
	}
	applied, err := s.Service.Documents.Apply(p.ctx(), p.who, client.Apply{Documents: []client.Document{d}, DryRun: true, Diff: true})
	if err != nil {
		e := service.ErrorOf(err)
		if e.Type == client.TypeInternal || e.Away() {
			return err
		}
		v.Problems = append(v.Problems, p.refusals(e)...)
		return nil
	}
	for _, r := range applied.Results {
		v.Diff, v.IsSame = diffLines(r.Diff), r.Result == client.Unchanged
		for _, warning := range r.Warnings {
			v.Notes = append(v.Notes, clean(warning))
		}
	}
	return nil
}

// diffLines are the lines of a difference with their looks.
func diffLines(diff string) (list []diffLine) {
	next := 1
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		class := "same"
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "diff "):
			continue
		case strings.HasPrefix(line, "@@"):
			class = "place"
			if _, after, ok := strings.Cut(line, " +"); ok {
				_, _ = fmt.Sscanf(after, "%d", &next)
			}
		case strings.HasPrefix(line, "+"):
			class = "add"
		case strings.HasPrefix(line, "-"):
			class = "del"
		}
		shown := diffLine{Class: class, Text: clean(line)}
		if class == "same" || class == "add" {
			shown.Number, next = next, next+1
		}
		list = append(list, shown)
	}
	return list
}

// importView shows what the lines of a crontab would become.
type importView struct {
	*Layout
	Text  string
	Zone  string
	Lines []importLine
	Jobs  int
}

type importLine struct {
	Number        int
	Text, Problem string
	Name, Words   string
	Notes         []string
	Edit          string
}

func (s *site) importPage(p *page) error {
	return p.show("import", importView{Layout: p.layout("import.title", "jobs"), Zone: p.zone.String()})
}

// importCrontab shows what the lines would become, or makes the jobs.
func (s *site) importCrontab(p *page) error {
	text := strings.ReplaceAll(p.r.PostForm.Get("crontab"), "\r\n", "\n")
	v := importView{Layout: p.layout("import.title", "jobs"), Text: text, Zone: p.zone.String()}
	var documents []client.Document
	for _, line := range crontab.Import(text, crontab.Options{Format: crontab.FormatOf("crontab"), Zone: v.Zone}) {
		row := importLine{Number: line.Number, Text: clean(line.Text), Problem: clean(line.Problem.In(string(p.lang))), Edit: "/jobs/new?line=" + url.QueryEscape(line.Text)}
		for _, note := range line.Notes {
			row.Notes = append(row.Notes, clean(note.In(string(p.lang))))
		}
		for _, d := range line.Documents {
			document, err := client.DocumentOf(d)
			if err != nil {
				return err
			}
			documents = append(documents, document)
			if d.Job != nil {
				v.Jobs++
				row.Name, row.Words = d.FullName(), p.schedule(d.Job)
			}
		}
		v.Lines = append(v.Lines, row)
	}
	if p.r.PostForm.Get("action") != "save" || len(documents) == 0 {
		return p.show("import", v)
	}
	if _, err := s.Service.Documents.Apply(p.ctx(), p.who, client.Apply{Documents: documents, Owner: "crontab"}); err != nil {
		return err
	}
	return p.done("/jobs", "imported", "n", fmt.Sprint(v.Jobs))
}

// fromCrontab is the document of a line of a crontab.
func fromCrontab(line, zone string) string {
	for _, l := range crontab.Import(line+"\n", crontab.Options{Format: crontab.FormatOf("crontab"), Zone: zone}) {
		for _, d := range l.Documents {
			var b bytes.Buffer
			if d.Job != nil && job.Encode(&b, []job.Document{d}, job.YAML) == nil {
				return b.String()
			}
		}
	}
	return fmt.Sprintf(newJob, zone)
}

// explainLine says what a line of a crontab means, for the page that a server without jobs has.
func (p *page) explainLine(line string) (words string, next []nextRow, problem string) {
	for _, l := range crontab.Import(line+"\n", crontab.Options{Format: crontab.FormatOf("crontab"), Zone: p.zone.String()}) {
		if !l.Problem.IsZero() {
			return "", nil, clean(l.Problem.In(string(p.lang)))
		}
		for _, d := range l.Documents {
			if d.Job == nil {
				continue
			}
			schedule, err := d.Job.CompileSchedule(nil)
			if err != nil || schedule == nil {
				return p.schedule(d.Job), nil, ""
			}
			t := p.now
			for range 3 {
				if t = schedule.Next(t); t.IsZero() {
					break
				}
				next = append(next, nextRow{At: p.minute(t), In: p.relative(t), UTC: t.UTC().Format(time.RFC3339)})
			}
			return p.schedule(d.Job), next, ""
		}
	}
	return "", nil, p.T("first.no_line")
}
