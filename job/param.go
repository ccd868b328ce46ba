package job

import (
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Param declares a parameter of a job.
type Param struct {
	Default     string    `json:"default,omitzero" short:"true" doc:"The value for runs without one. Default: empty."`
	Title       string    `json:"title,omitzero" max:"240" doc:"What forms call the parameter. Default: its name."`
	Description string    `json:"description,omitzero" max:"4096" doc:"What the parameter is for."`
	Type        ParamType `json:"type,omitzero" doc:"What values are. An empty one is none, of any type. Default: text."`
	Values      []string  `json:"values,omitzero" items:"64" doc:"The values of the type enum, or the secrets of the namespace that a run may choose by name."`
	Required    bool      `json:"required,omitzero" doc:"Refuse runs without a value. Only for jobs without a schedule."`
	Min         string    `json:"min,omitzero" max:"64" doc:"The least int, number, date or datetime."`
	Max         string    `json:"max,omitzero" max:"64" doc:"The largest int, number, date or datetime."`
	Pattern     string    `json:"pattern,omitzero" max:"1024" doc:"A regular expression that a whole text matches."`
}

// ParamType is the type of a parameter's values.
type ParamType string

// The types of parameters.
const (
	ParamText     ParamType = "text"
	ParamEnum     ParamType = "enum"     // one of Values
	ParamBool     ParamType = "bool"     // true or false
	ParamInt      ParamType = "int"      // a whole number of 64 bits
	ParamNumber   ParamType = "number"   // a decimal number
	ParamDate     ParamType = "date"     // a day: 2026-10-01
	ParamDateTime ParamType = "datetime" // an instant in the form of RFC 3339
	ParamSecret   ParamType = "secret"   // the name of a secret in Values: templates read its value
)

// Values returns all types of parameters.
func (ParamType) Values() []string {
	return texts(ParamText, ParamEnum, ParamBool, ParamInt, ParamNumber, ParamDate, ParamDateTime, ParamSecret)
}

// Wrong returns why a value of the parameter is refused, and what would be right; zero for a good one.
func (p *Param) Wrong(value string) (why, hint Reason) {
	message, right := p.wrong(value)
	return phraseReason(message), phraseReason(right)
}

func (p *Param) wrong(value string) (why, hint phrase.Text) {
	if value == "" {
		if p.Required {
			return phrase.Missing, phrase.ParamNeeded
		}
		return phrase.Text{}, phrase.Text{}
	}
	switch p.Type {
	case ParamEnum, ParamSecret:
		if !slices.Contains(p.Values, value) {
			return phrase.UnknownValue.Of(quote(value), p.Values), nearest(value, p.Values)
		}
	case ParamInt, ParamNumber, ParamDate, ParamDateTime:
		read := orders[p.Type]
		found, ok := read.parse(value)
		if !ok {
			return read.wrong(value), read.form
		}
		if least, ok := read.parse(p.Min); ok && found.less(least) {
			return phrase.NotAtLeast.Of(p.Min, value), phrase.Text{}
		}
		if most, ok := read.parse(p.Max); ok && most.less(found) {
			return phrase.NotAtMost.Of(p.Max, value), phrase.Text{}
		}
	case ParamBool:
		if value != "true" && value != "false" {
			return phrase.NotBool.Of(quote(value)), phrase.ABool
		}
	default:
		if p.Pattern == "" {
			break
		}
		if whole, err := regexp.Compile(`\A(?:` + p.Pattern + `)\z`); err == nil && !whole.MatchString(value) {
			return phrase.NotMatching.Of(quote(value), p.Pattern), phrase.Text{}
		}
	}
	return phrase.Text{}, phrase.Text{}
}

// orderedValue is a value of a type with bounds.
type orderedValue struct {
	whole  int64
	number float64
	at     time.Time
}

func (o orderedValue) less(other orderedValue) bool {
	return o.whole < other.whole || o.number < other.number || o.at.Before(other.at)
}

// order reads the values of a type with bounds.
type order struct {
	parse func(text string) (orderedValue, bool)
	wrong func(text string) phrase.Text
	form  phrase.Text
}

var orders = map[ParamType]order{
	ParamInt: {func(text string) (orderedValue, bool) {
		n, err := strconv.ParseInt(text, 10, 64)
		return orderedValue{whole: n}, err == nil
	}, phrase.NotWhole.Of, phrase.Text{}},
	ParamNumber: {func(text string) (orderedValue, bool) {
		x, err := strconv.ParseFloat(text, 64)
		return orderedValue{number: x}, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0) && !strings.ContainsAny(text, "xX_")
	}, func(text string) phrase.Text { return phrase.NotNumber.Of(quote(text)) }, phrase.Text{}},
	ParamDate: {func(text string) (orderedValue, bool) {
		t, err := time.Parse(time.DateOnly, text)
		return orderedValue{at: t}, err == nil
	}, func(text string) phrase.Text { return phrase.NotDate.Of(quote(text)) }, phrase.Text{}},
	ParamDateTime: {func(text string) (orderedValue, bool) {
		t, err := time.Parse(time.RFC3339, text)
		return orderedValue{at: t}, err == nil
	}, func(text string) phrase.Text { return phrase.NotInstant.Of(quote(text)) }, phrase.AnInstant},
}

var paramPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

func (v *validator) params(j *Job) {
	variables := map[string]string{}
	for _, name := range sortedKeys(reflect.ValueOf(j.Params)) {
		at := root.field("params").field(name)
		if !paramPattern.MatchString(name) {
			v.report(at, phrase.NotParam.Of(quote(name)), phrase.ParamForm)
		}
		variable := ParamVariable(name)
		if other, ok := variables[variable]; ok {
			v.report(at, phrase.SameVariable.Of(variable, quote(other)))
		}
		variables[variable] = name
		v.param(j, j.Params[name], at)
	}
}

func (v *validator) param(j *Job, p Param, at *path) {
	read, isOrdered := orders[p.Type]
	chosen := p.Type == ParamEnum || p.Type == ParamSecret
	v.refuse(len(p.Values) > 0 && !chosen, at.field("values"), phrase.OnlyWithOr.Of([]string{"type: enum", "type: secret"}))
	if chosen && len(p.Values) == 0 {
		v.report(at.field("values"), phrase.Missing, phrase.ParamValues)
		return
	}
	for i, value := range p.Values {
		if p.Type == ParamSecret {
			v.secretChoice(j, value, at.field("values").item(i))
		}
		v.refuse(value == "", at.field("values").item(i), phrase.IsEmptyValue.Of(quote(value)))
		v.refuse(slices.Contains(p.Values[:i], value), at.field("values").item(i), phrase.GivenTwice.Of(value))
	}
	v.refuse(p.Pattern != "" && p.Type != "" && p.Type != ParamText, at.field("pattern"), phrase.OnlyWith.Of("type: text"))
	v.regexp(p.Pattern, at.field("pattern"))
	bounds := map[string]orderedValue{}
	for _, bound := range []struct{ name, text string }{{"min", p.Min}, {"max", p.Max}} {
		if bound.text == "" {
			continue
		}
		if !isOrdered {
			v.refuse(true, at.field(bound.name), phrase.OnlyWithOr.Of([]string{"type: int", "type: number", "type: date", "type: datetime"}))
			continue
		}
		value, ok := read.parse(bound.text)
		if !ok {
			v.report(at.field(bound.name), read.wrong(bound.text), read.form)
			return
		}
		bounds[bound.name] = value
	}
	if least, ok := bounds["min"]; ok {
		most, both := bounds["max"]
		v.refuse(both && most.less(least), at.field("max"), phrase.NotAtLeast.Of(p.Min, p.Max))
	}
	v.refuse(p.Required && p.Default != "", at.field("required"), phrase.RequiredDefault, phrase.LeaveOneOut)
	v.refuse(p.Required && p.Default == "" && startsRuns(&j.Schedule), at.field("required"), phrase.RequiredSchedule, phrase.SetParamDefault)
	if p.Default != "" {
		if message, hint := p.wrong(p.Default); !message.IsZero() {
			v.report(at.field("default"), message, hint)
		}
	}
}

// startsRuns reports whether a schedule starts runs, which have the defaults of parameters.
func startsRuns(s *Schedule) bool {
	return len(s.Cron) > 0 || s.Every != 0 || s.AfterEnd != 0 || len(s.At) > 0 || len(s.On) > 0 || s.Boot
}

// secretChoice checks the name of a secret that a run may choose.
func (v *validator) secretChoice(j *Job, name string, at *path) {
	if !IsSecretName(name) {
		v.report(at, phrase.NotSecretName.Of(quote(name)), phrase.SecretNameForm.Of(SecretNameMax))
		return
	}
	v.knowSecret(at, namespaceOf(j.Namespace), name)
}

// secretParams returns the parameters that choose a secret.
func (j *Job) secretParams() (names []string) {
	for _, name := range j.paramNames() {
		if j.Params[name].Type == ParamSecret {
			names = append(names, name)
		}
	}
	return names
}

// SecretsOf returns the names of the secrets that a run with parameters reads: SecretNames without
// unchosen ones.
func (j *Job) SecretsOf(params map[string]string) []string {
	named := j.templateSecrets()
	for _, name := range j.secretParams() {
		value, given := params[name]
		if !given {
			value = j.Params[name].Default
		}
		if value != "" {
			named = with(named, value)
		}
	}
	return slices.Sorted(maps.Keys(named))
}

// ParamVariable returns the environment variable that holds a parameter for commands.
func ParamVariable(name string) string { return variablePrefix + "PARAM_" + strings.ToUpper(name) }

// variablePrefix begins the environment variables of every run.
const variablePrefix = "BELFRY_"
