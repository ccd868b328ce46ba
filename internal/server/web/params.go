package web

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// paramField is the field of a form for a parameter.
type paramField struct {
	ID, Name, Label   string // Name is sent
	Description, Hint string
	Value             string
	Input             string // the type of an input
	Min, Max, Step    string
	Required          bool
	Buttons           []paramChoice // few choices stand beside each other
	Choices           []paramChoice // many are in a list
}

type paramChoice struct {
	Value, Text string
	Current     bool
}

const (
	// buttonsMost is how many choices stand beside each other in a dialog.
	buttonsMost = 4
	// paramPrefix begins the names of fields with a value as it is, and instantPrefix the names of fields with a local time.
	paramPrefix, instantPrefix = "param.", "instant."
	// localTime is how browsers write a local time, and localTimeLong how they write one with seconds.
	localTime, localTimeLong = "2006-01-02T15:04", "2006-01-02T15:04:05"
)

// paramFields are the fields of a form for a run of a job, with some values instead of the defaults.
func (p *page) paramFields(j *job.Job, values map[string]string) (list []paramField) {
	if j == nil { // it is gone
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(j.Params)) {
		param := j.Params[name]
		value, given := values[name]
		if !given {
			value = param.Default
		}
		f := paramField{
			ID: name, Name: paramPrefix + name, Label: clean(cmp.Or(param.Title, name)), Description: clean(param.Description),
			Value: value, Input: "text", Min: param.Min, Max: param.Max, Required: param.Required,
		}
		var choices []paramChoice
		switch param.Type {
		case job.ParamInt:
			f.Input, f.Step = "number", "1"
		case job.ParamNumber:
			f.Input, f.Step = "number", "any"
		case job.ParamDate:
			f.Input = "date"
		case job.ParamDateTime:
			f.Name, f.Input, f.Step = instantPrefix+name, "datetime-local", "1"
			f.Hint = p.T("nav.zone", "zone", p.zone.String())
			for _, at := range []*string{&f.Value, &f.Min, &f.Max} {
				*at = p.localText(*at)
			}
		case job.ParamBool:
			choices = []paramChoice{{Value: "true", Text: p.T("params.true")}, {Value: "false", Text: p.T("params.false")}}
		case job.ParamEnum, job.ParamSecret:
			for _, v := range param.Values {
				choices = append(choices, paramChoice{Value: v, Text: clean(v)})
			}
		default:
			if param.Pattern != "" {
				f.Hint = p.T("params.pattern", "pattern", param.Pattern)
			}
		}
		if param.Default == "" && !param.Required && len(choices) > 0 {
			choices = slices.Insert(choices, 0, paramChoice{Text: p.T("params.none")})
		}
		for i := range choices {
			choices[i].Current = choices[i].Value == value
		}
		if len(choices) <= buttonsMost {
			f.Buttons = choices
		} else {
			f.Choices = choices
		}
		list = append(list, f)
	}
	return list
}

// localText writes an instant as a field for a local time has it; another text is returned as it is.
func (p *page) localText(text string) string {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.In(p.zone).Format(localTimeLong)
	}
	return text
}

// paramsOf returns the parameters that a form has.
func (p *page) paramsOf(form url.Values) map[string]string {
	params := map[string]string{}
	for field, values := range form {
		if name, ok := strings.CutPrefix(field, paramPrefix); ok {
			params[name] = values[0]
		}
		name, ok := strings.CutPrefix(field, instantPrefix)
		if !ok {
			continue
		}
		params[name] = values[0] // the server says what is wrong with another text
		for _, layout := range []string{localTime, localTimeLong} {
			if t, err := time.ParseInLocation(layout, values[0], p.zone); err == nil {
				params[name] = t.Format(time.RFC3339)
			}
		}
	}
	return params
}
