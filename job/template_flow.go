package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// The values in templates of flows: results of steps, and items.

// step compiles .Steps.name.Outcome, .Attempt, .Result and its suffix.
func (c *compiler) step(n *parse.FieldNode, args []*expression) (*expression, error) {
	if len(args) > 0 {
		return nil, phrase.Mistake(phrase.NotFunction.Of(n.String()))
	}
	if len(n.Ident) < 3 {
		return nil, phrase.Mistake(phrase.NotComplete.Of(n.String()), phrase.StepsForm)
	}
	name, what, rest := n.Ident[1], n.Ident[2], n.Ident[3:]
	if c.steps != nil && !c.steps[name] {
		return nil, phrase.Mistake(phrase.NotSurelyOver.Of(n.String(), quote(name)),
			nearest(name, slices.Collect(maps.Keys(c.steps))).Or(phrase.NameInNeeds))
	}
	if c.uses != nil {
		c.uses[name] = true
	}
	e := &expression{source: n.String()}
	switch {
	case what == "Outcome" && len(rest) == 0:
		e.kind, e.eval = textValue, func(d *TemplateData) (any, error) { return string(d.Steps[name].Outcome), nil }
	case what == "Attempt" && len(rest) == 0:
		e.kind, e.eval = numberValue, func(d *TemplateData) (any, error) { return d.Steps[name].Attempt, nil }
	case what == "Result":
		e.kind, e.free = foundValue, true
		e.raw = func(d *TemplateData) (json.RawMessage, error) {
			s := d.Steps[name]
			if s.Result == nil {
				return nil, fmt.Errorf("step %s has no result: it is %s", name, cmp.Or(string(s.Outcome), "not over"))
			}
			return pick(s.Result, rest, "the result of step "+name)
		}
		e.eval = plainEval(e.raw)
	default:
		return nil, phrase.Mistake(phrase.Meaningless.Of(n.String()), phrase.StepsForm)
	}
	return e, nil
}

// itemValue compiles .Item and its suffix.
func (c *compiler) itemValue(n *parse.FieldNode, args []*expression) (*expression, error) {
	if len(args) > 0 {
		return nil, phrase.Mistake(phrase.NotFunction.Of(n.String()))
	}
	rest := n.Ident[1:]
	e := &expression{kind: foundValue, free: true, source: n.String()}
	e.raw = func(d *TemplateData) (json.RawMessage, error) { return pick(d.Item, rest, "the item") }
	e.eval = plainEval(e.raw)
	return e, nil
}

// callValue compiles .Body, .Header and their suffixes. A value that a call does not have is empty:
// its events have many shapes.
func (c *compiler) callValue(n *parse.FieldNode, args []*expression) (*expression, error) {
	if len(args) > 0 {
		return nil, phrase.Mistake(phrase.NotFunction.Of(n.String()))
	}
	e := &expression{kind: foundValue, free: true, source: n.String()}
	e.raw = func(d *TemplateData) (json.RawMessage, error) {
		value := d.Call.Body
		if n.Ident[0] == "Header" {
			value = d.Call.Header
		}
		if found, err := pick(value, n.Ident[1:], ""); err == nil {
			return found, nil
		}
		return json.RawMessage(`""`), nil
	}
	e.eval = plainEval(e.raw)
	return e, nil
}

func plainEval(raw func(*TemplateData) (json.RawMessage, error)) func(*TemplateData) (any, error) {
	return func(d *TemplateData) (any, error) {
		value, err := raw(d)
		if err != nil {
			return nil, err
		}
		return plainOfJSON(value), nil
	}
}

// pick returns the value at a path in a JSON value.
func pick(value json.RawMessage, place []string, of string) (json.RawMessage, error) {
	for i, key := range place {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil || object == nil {
			return nil, fmt.Errorf("%s has no %s: there is no object", of, strings.Join(place[:i+1], "."))
		}
		inner, ok := object[key]
		if !ok {
			return nil, fmt.Errorf("%s has no %s; there are %s", of, strings.Join(place[:i+1], "."), phrase.NamesAnd.Of(slices.Sorted(maps.Keys(object))))
		}
		value = inner
	}
	return value, nil
}

// plainOfJSON returns a JSON value for templates: texts, whole numbers and truth values as such,
// other values as written.
func plainOfJSON(value json.RawMessage) any {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return string(value)
	}
	switch v := v.(type) {
	case nil:
		return ""
	case string, bool:
		return v
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		return v.String()
	}
	var compact bytes.Buffer
	if json.Compact(&compact, value) != nil {
		return string(value)
	}
	return compact.String()
}

// convert converts a value from a result to the type that a function takes.
func convert(v any, want valueKind, source string) (any, error) {
	switch want {
	case textValue:
		return valueText(v), nil
	case numberValue:
		switch v := v.(type) {
		case int:
			return v, nil
		case string:
			if n, err := strconv.Atoi(v); err == nil {
				return n, nil
			}
		}
	case truthValue:
		return truth(v), nil
	case momentValue:
		if text, ok := v.(string); ok {
			if t, err := parseInstant(text); err == nil {
				return t, nil
			}
		}
	default:
		return v, nil
	}
	return nil, fmt.Errorf("%s is %s, not a %s", source, quote(valueText(v)), want)
}

// Uses returns the steps whose results the i-th step of All reads: steps in its templates and, for
// a handler, whose code reads results, all its needs; in finally all other steps. The flow must be
// valid.
func (f *Flow) Uses(i int, params []string) []string {
	s := f.All()[i]
	uses := map[string]bool{}
	if s.Run.Handler != nil {
		for _, name := range s.Needs {
			uses[name] = true
		}
		for k := range f.Steps {
			if f.IsFinally(i) {
				uses[f.Steps[k].Name] = true
			}
		}
	}
	visit := func(kind TemplateKind, text string, _ *path) string {
		// Invalid templates use nothing.
		_, _ = compileTemplate(kind, text, &compiler{params: params, flow: true, item: true, uses: uses})
		return text
	}
	for _, text := range append(slices.Clone(s.ForEach), s.If) {
		visit(TemplateText, text, nil)
	}
	if s.Wait != nil {
		visit(TemplateText, s.Wait.Until, nil)
		visit(TemplateText, s.Wait.Approval, nil)
	}
	if w := s.Run.work(); w != nil {
		w.expand(visit, root)
	}
	return slices.Sorted(maps.Keys(uses))
}

// flowCompiler is for templates that are evaluated with all steps that are over.
func flowCompiler(data *TemplateData) *compiler {
	return &compiler{params: slices.Sorted(maps.Keys(data.Params)), flow: true, item: data.Item != nil}
}

// Text returns the text of a template of a flow.
func (d TemplateData) Text(template string) (string, error) {
	t, err := compileTemplate(TemplateText, template, flowCompiler(&d))
	if err != nil {
		return "", err
	}
	return t.Execute(d)
}

// Condition returns the value of an if: true or false; any other value is an error.
func (d TemplateData) Condition(template string) (bool, error) {
	text, err := d.Text(template)
	if err != nil {
		return false, err
	}
	return conditionOf(strings.TrimSpace(text))
}

// Instant returns the moment of an until.
func (d TemplateData) Instant(template string) (time.Time, error) {
	text, err := d.Text(template)
	if err != nil {
		return time.Time{}, err
	}
	return parseInstant(strings.TrimSpace(text))
}

// Items returns the items of a for_each.
func (d TemplateData) Items(forEach []string) ([]json.RawMessage, error) {
	if len(forEach) == 1 && strings.Contains(forEach[0], "{{") {
		return d.list(forEach[0])
	}
	items := make([]json.RawMessage, len(forEach))
	for i, template := range forEach {
		text, err := d.Text(template)
		if err != nil {
			return nil, err
		}
		items[i] = jsonText(text)
	}
	return items, nil
}

// list returns the list of a template: a value that is a list, or a text that is a JSON list.
func (d TemplateData) list(template string) ([]json.RawMessage, error) {
	t, err := compileTemplate(TemplateText, template, flowCompiler(&d))
	if err != nil {
		return nil, err
	}
	var value json.RawMessage
	if len(t.parts) == 1 && t.parts[0].value != nil && t.parts[0].value.raw != nil {
		value, err = t.parts[0].value.raw(&d)
	} else {
		var text string
		text, err = t.Execute(d)
		value = json.RawMessage(text)
	}
	if err != nil {
		return nil, err
	}
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil || items == nil {
		return nil, fmt.Errorf("%s is not a list", quote(shortened(string(value))))
	}
	if len(items) > ItemsMax {
		return nil, fmt.Errorf("it has %d items, at most %d are allowed", len(items), ItemsMax)
	}
	return items, nil
}

// shownMax is the most bytes of a value in an error.
const shownMax = 80

func shortened(text string) string {
	if len(text) > shownMax {
		return strings.ToValidUTF8(text[:shownMax], "") + "…"
	}
	return text
}

// jsonText returns a text in JSON.
func jsonText(text string) json.RawMessage { return appendJSONText(nil, text) }
