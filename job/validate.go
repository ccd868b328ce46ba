package job

import (
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Option configures [Document.Validate].
type Option func(*validator)

// Now sets the moment after which a schedule must fall due. Default: 1970.
func Now(now time.Time) Option { return func(v *validator) { v.now = now } }

// Under sets the defaults of the server and namespace where the job will run. Default:
// only the built-in ones.
func Under(defaults Defaults) Option { return func(v *validator) { v.defaults = &defaults } }

// Among sets the lookup for the calendars of a job. Without it every name of a calendar
// is accepted.
func Among(calendars Calendars) Option {
	return func(v *validator) { v.calendars, v.wantCalendars = calendars, true }
}

// KnownSecrets sets a function that explains why a secret does not exist, or returns none. Without
// it every name is accepted.
func KnownSecrets(unknown func(namespace, name string) Reason) Option {
	return func(v *validator) { v.unknownSecret = unknown }
}

// validator collects the mistakes in a document.
type validator struct {
	doc           Document
	now           time.Time
	defaults      *Defaults
	unknownSecret func(namespace, name string) Reason // nil if all are known
	calendars     Calendars
	wantCalendars bool // calendars must exist
	unknownDays   bool // a named calendar was not looked up
	problems      Problems
}

func newValidator(d Document, options []Option) *validator {
	v := &validator{doc: d, now: time.Unix(0, 0)}
	for _, option := range options {
		option(v)
	}
	if v.defaults == nil {
		v.defaults = &Defaults{}
	}
	return v
}

// Validate reports every mistake in a document with its position, except those that [Decode]
// has reported and their possible consequences. The error is of type [Problems].
func (d Document) Validate(options ...Option) error {
	v := newValidator(d, options)
	v.bounds(d.body(), root)
	switch d.kind() {
	case KindCalendar:
		v.name(d.Calendar.Namespace, d.Calendar.Name)
		v.calendarDocument(d.Calendar)
	case KindPool:
		v.name(d.Pool.Namespace, d.Pool.Name)
		v.labels(d.Pool.Labels, root.field("labels"))
		v.refuse(d.Pool.Slots.Size == 0 && d.Pool.Slots.Rate == nil, root.at("pool.size"), phrase.Missing, phrase.HowManyRuns)
		if rate := d.Pool.Slots.Rate; rate != nil {
			v.refuse(rate.Limit == 0, root.at("pool.rate.limit"), phrase.Missing, phrase.HowManyStarts)
			v.refuse(rate.Per == 0, root.at("pool.rate.per"), phrase.Missing, phrase.TimeOfStarts)
		}
	case KindWindow:
		v.name(d.Window.Namespace, d.Window.Name)
		v.windowDocument(d.Window)
	case KindChannel:
		v.name(d.Channel.Namespace, d.Channel.Name)
		v.channel(d.Channel)
	case KindHook:
		v.name(d.Hook.Namespace, d.Hook.Name)
		v.hookDocument(d.Hook)
	case KindExecutors:
		v.name(d.Executors.Namespace, d.Executors.Name)
		v.executors(d.Executors)
	default:
		v.name(d.Job.Namespace, d.Job.Name)
		v.job(d.Job)
	}
	return v.problems.asError()
}

// Validate reports all mistakes in a job that was not read from a document. The error is
// of type [Problems].
func (j *Job) Validate(options ...Option) error {
	return Document{Job: j}.Validate(options...)
}

// report records a problem of a field, at its actual or expected position in the text.
func (v *validator) report(at *path, message phrase.Text, hint ...phrase.Text) {
	if !v.doc.isBroken(at.String(), false) {
		v.record(at, phraseReason(message), phraseReason(first(hint)))
	}
}

func (v *validator) record(at *path, message, hint Reason) {
	p := Problem{File: v.doc.File, Path: at.String(), Message: message, Hint: hint}
	if v.doc.source != nil {
		var place *node
		p.Path, place = at.locate(v.doc.source)
		p.Line, p.Column = place.place()
	}
	v.problems = append(v.problems, p)
}

// reportError records a problem, if err is not nil.
func (v *validator) reportError(at *path, err error) {
	if err != nil {
		message, hint := phrase.InWords(err)
		v.report(at, message, hint)
	}
}

// refuse reports a field that is set where it has no meaning.
func (v *validator) refuse(set bool, at *path, message phrase.Text, hint ...phrase.Text) {
	if set && !v.doc.isBroken(at.String(), true) {
		v.report(at, message, hint...)
	}
}

// isBroken reports whether a problem of a field may only follow from a mistake that [Decode] has
// reported: in the field itself, around or inside it, or in a field beside it on which the problem
// depends.
func (d *Document) isBroken(at string, beside bool) bool {
	within := func(inner, outer string) bool {
		rest, ok := strings.CutPrefix(inner, outer)
		return ok && (rest == "" || outer == "" || rest[0] == '.' || rest[0] == '[')
	}
	for _, broken := range d.broken {
		parent := broken[:max(0, strings.LastIndexAny(broken, ".["))]
		if within(at, broken) || within(broken, at) || beside && parent != "" && within(at, parent) {
			return true
		}
	}
	return false
}

// locate returns the path as the user wrote it, and the node that is nearest to it. It
// distinguishes the two notations of a value: a single item without its list has no index,
// and a short text no field.
func (p *path) locate(source *node) (shown string, nearest *node) {
	var b strings.Builder
	nearest, _ = p.follow(source, &b)
	return b.String(), nearest
}

// follow writes the path for locate. found is set if nearest is its end.
func (p *path) follow(source *node, b *strings.Builder) (nearest *node, found bool) {
	if p == nil {
		return source, true
	}
	here, found := p.parent.follow(source, b)
	var next *node
	switch {
	case !found:
	case p.index != notItem:
		if here.kind != listNode && p.index == 0 {
			return here, true
		}
		if here.kind == listNode && p.index < len(here.entries) {
			next = here.entries[p.index].value
		}
	case here.kind == scalarNode && (p.parent == nil || !p.parent.hasParts):
		return here, true
	default:
		next = here.get(p.key)
	}
	p.writeStep(b)
	if next == nil {
		return here, false
	}
	return next, true
}

// bounds reports values outside the bounds of the tags.
func (v *validator) bounds(value reflect.Value, at *path) {
	for _, f := range fieldsOf(value.Type()) {
		set := f.of(value)
		switch {
		case set.IsZero():
		case f.plain:
			v.leafBounds(f, set, at.field(f.name))
		default:
			v.fieldBounds(f, set, at.field(f.name))
		}
	}
}

// leafBounds is fieldBounds for a plain field. It is not recursive, so its path needs no
// allocation.
func (v *validator) leafBounds(f *field, value reflect.Value, at *path) {
	if value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	if message := f.checkBounds(value); !message.IsZero() {
		v.report(at, message)
	} else if value.Kind() == reflect.String {
		message, hint := checkEnum(value)
		v.refuse(!message.IsZero(), at, message, hint)
		v.refuse(strings.Contains(value.String(), "\x00"), at, phrase.HasNUL)
		v.refuse(!utf8.ValidString(value.String()), at, phrase.NotUTF8)
	}
}

func (v *validator) fieldBounds(f *field, value reflect.Value, at *path) {
	if value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	t := value.Type()
	if isLeaf(t) {
		v.leafBounds(f, value, at)
		return
	}
	if message := f.checkBounds(value); !message.IsZero() {
		v.report(at, message)
		return
	}
	switch {
	case t.Kind() == reflect.Struct:
		v.bounds(value, at)
	case t.Kind() == reflect.Slice:
		for i := range value.Len() {
			v.fieldBounds(f, value.Index(i), at.item(i))
		}
	case t.Kind() == reflect.Map:
		v.keys(f, value, at)
		for _, key := range sortedKeys(value) {
			v.fieldBounds(f, value.MapIndex(reflect.ValueOf(key)), at.field(key))
		}
	}
}

// keys checks the keys of a mapping by the tag of its field.
func (v *validator) keys(f *field, value reflect.Value, at *path) {
	switch f.keys {
	case "names":
		for _, name := range sortedKeys(value) {
			v.checkName(at.field(name), name)
		}
	case "labels":
		v.labels(value.Interface().(map[string]string), at)
	case "variables":
		for _, name := range sortedKeys(value) {
			v.checkVariable(at.field(name), name)
		}
	}
}

var variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (v *validator) checkVariable(at *path, name string) {
	v.refuse(!variablePattern.MatchString(name), at, phrase.NotVariable.Of(quote(name)), phrase.VariableForm)
}

// IsNamespace reports whether a name is valid for a namespace.
func IsNamespace(name string) bool { return isName(name) }

// isName reports whether a text has the form in [phrase.NameForm].
func isName(text string) bool {
	const first = "abcdefghijklmnopqrstuvwxyz0123456789"
	return hasForm(text, 128, first, first+"._-")
}

// hasForm reports whether a text has at most the given length, and allowed first and other bytes. A
// regular expression would take ten times as long for the many names.
func hasForm(text string, most int, first, others string) bool {
	return text != "" && len(text) <= most && strings.IndexByte(first, text[0]) >= 0 && strings.Trim(text, others) == ""
}

// name checks the name of a document.
func (v *validator) name(namespace, name string) {
	if name == "" {
		v.report(root.field("name"), phrase.Missing, phrase.NameForm)
	} else {
		v.refuse(!isName(name), root.field("name"), phrase.NotName.Of(quote(name)), v.hintOfName(name))
	}
	if namespace != "" {
		v.checkName(root.field("namespace"), namespace)
	}
}

// hintOfName says what a name is made of, and for a job what else may hold the text.
func (v *validator) hintOfName(name string) phrase.Text {
	if v.doc.kind() != KindJob {
		return phrase.NameForm
	}
	var near phrase.Text
	if meant := strings.Join(strings.Fields(strings.ToLower(name)), "-"); isName(meant) {
		near = phrase.DidYouMean.Of(quote(meant))
	}
	return phrase.TitleToo.Of(phrase.NameForm, near)
}

func (v *validator) checkName(at *path, name string) {
	v.refuse(!isName(name), at, phrase.NotName.Of(quote(name)), phrase.NameForm)
}

func isLabel(text string) bool {
	const first = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	return hasForm(text, 128, first, first+"._/-")
}

// IsLabel reports whether a name and a value are valid for a label.
func IsLabel(key, value string) bool {
	return isLabel(key) && len(value) <= labelValueMax && !strings.ContainsFunc(value, isControl)
}

// labelValueMax is the length of a label in bytes that a table can show.
const labelValueMax = 256

// labels checks the labels of a document or of the nodes that it requires.
func (v *validator) labels(labels map[string]string, at *path) {
	for _, key := range sortedKeys(reflect.ValueOf(labels)) {
		v.refuse(!isLabel(key), at.field(key), phrase.NotLabel.Of(quote(key)),
			phrase.LabelForm)
		v.refuse(len(labels[key]) > labelValueMax || strings.ContainsFunc(labels[key], isControl), at.field(key),
			phrase.NotLabelValue, phrase.LabelValueForm.Of(labelValueMax))
	}
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// regexps checks a regular expression.
func (v *validator) regexp(text string, at *path) {
	if _, err := regexp.Compile(text); err != nil {
		v.report(at, phrase.NotRegexp.Of(phrase.Words(strings.TrimPrefix(err.Error(), "error parsing regexp: "))), phrase.RE2)
	}
}

// calendarDocument checks a calendar.
func (v *validator) calendarDocument(c *Calendar) {
	v.labels(c.Labels, root.field("labels"))
	if days, times, err := parseRule(c.Name); days != nil || times != nil || err != nil {
		v.report(root.field("name"), phrase.LooksLikeRule.Of(quote(c.Name)))
	}
	d := c.Days
	at := root.field("calendar")
	v.refuse(len(d.Include)+len(d.Exclude)+len(d.Weekdays)+len(d.ICS) == 0, at, phrase.NoDays, phrase.SetDays)
	v.refuse(len(d.Exclude) > 0 && len(d.Weekdays) == 0, at.field("exclude"), phrase.ExcludesNothing, phrase.SetWeekdays)
	v.compileDays(&d)
}
