package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template/parse"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/phrase"
)

// Expressions between the braces of a template, compiled to functions with a known type. This file
// has tables of all their names.

// kindWords are the types in words.
var kindWords = map[valueKind]phrase.Text{
	textValue: phrase.KindText, numberValue: phrase.KindNumber, truthValue: phrase.KindTruth, momentValue: phrase.KindTime,
	anyValue: phrase.KindValue, foundValue: phrase.KindResult, secretValue: phrase.KindSecret,
}

// valueKind is the type of a value in a template.
type valueKind string

const (
	textValue   valueKind = "text"
	numberValue valueKind = "number"      // an int
	truthValue  valueKind = "truth value" // a bool
	momentValue valueKind = "time"        // a time.Time; the zero time is empty
	anyValue    valueKind = "value"       // as a parameter of functions only
	foundValue  valueKind = "result"      // a value in a result, of any other kind
	secretValue valueKind = "secret"
)

// expression is a compiled expression.
type expression struct {
	kind     valueKind
	constant bool
	// free is set if the text may hold any character: it comes from people or machines, unlike a
	// schedule or a counter.
	free bool
	eval func(*TemplateData) (any, error)
	// raw returns the value of eval in JSON, or nil if it is not from a result.
	raw func(*TemplateData) (json.RawMessage, error)
	// source is the expression as written.
	source string
}

// rootFields are the fields of a template's data, except for the parameters.
var rootFields = map[string]struct {
	kind valueKind
	free bool
	get  func(*TemplateData) any
}{
	"Scheduled": {momentValue, false, func(d *TemplateData) any { return d.Scheduled }},
	"Previous":  {momentValue, false, func(d *TemplateData) any { return d.Previous }},
	"Next":      {momentValue, false, func(d *TemplateData) any { return d.Next }},
	"Run":       {textValue, false, func(d *TemplateData) any { return d.Run.String() }},
	"Attempt":   {numberValue, false, func(d *TemplateData) any { return d.Attempt }},
	"Shard":     {numberValue, false, func(d *TemplateData) any { return d.Shard }},
	"Shards":    {numberValue, false, func(d *TemplateData) any { return d.Shards }},
	"Job":       {textValue, false, func(d *TemplateData) any { return d.Namespace + "/" + d.Name }},
	"Namespace": {textValue, false, func(d *TemplateData) any { return d.Namespace }},
	"Name":      {textValue, false, func(d *TemplateData) any { return d.Name }},
	"Node":      {textValue, true, func(d *TemplateData) any { return d.Node }},
}

// function computes a value from values.
type function struct {
	takes  []valueKind
	many   bool // the last kind in takes may repeat
	result valueKind
	call   func(args []any) (any, error)
	// check, if any, judges arguments that are constants.
	check func(constants []any) error
}

// moments are the methods of times. The first argument is the time.
var moments = map[string]function{
	"Format": {takes: []valueKind{momentValue, textValue}, result: textValue, call: func(a []any) (any, error) {
		return onMoment(a, "", func(t time.Time) string { return t.Format(a[1].(string)) }), nil
	}},
	"AddDate": {takes: []valueKind{momentValue, numberValue, numberValue, numberValue}, result: momentValue, call: func(a []any) (any, error) {
		return onMoment(a, time.Time{}, func(t time.Time) time.Time { return t.AddDate(a[1].(int), a[2].(int), a[3].(int)) }), nil
	}},
	"Add": {takes: []valueKind{momentValue, textValue}, result: momentValue, check: checkAdd, call: func(a []any) (any, error) {
		d, err := parseSignedDuration(a[1].(string))
		return onMoment(a, time.Time{}, func(t time.Time) time.Time { return t.Add(d) }), err
	}},
	"In": {takes: []valueKind{momentValue, textValue}, result: momentValue, check: checkIn, call: func(a []any) (any, error) {
		zone, err := cron.LoadZone(a[1].(string))
		if err != nil {
			return nil, err
		}
		return onMoment(a, time.Time{}, func(t time.Time) time.Time { return t.In(zone.Location()) }), nil
	}},
	"UTC":       {takes: []valueKind{momentValue}, result: momentValue, call: func(a []any) (any, error) { return a[0].(time.Time).UTC(), nil }},
	"Year":      momentNumber(time.Time.Year),
	"Month":     momentNumber(func(t time.Time) int { return int(t.Month()) }),
	"Day":       momentNumber(time.Time.Day),
	"Hour":      momentNumber(time.Time.Hour),
	"Minute":    momentNumber(time.Time.Minute),
	"Second":    momentNumber(time.Time.Second),
	"YearDay":   momentNumber(time.Time.YearDay),
	"ISOWeek":   momentNumber(func(t time.Time) int { _, week := t.ISOWeek(); return week }),
	"Unix":      momentNumber(func(t time.Time) int { return int(t.Unix()) }),
	"UnixMilli": momentNumber(func(t time.Time) int { return int(t.UnixMilli()) }),
}

// functions are called by name.
var functions = map[string]function{
	"and": {takes: []valueKind{anyValue}, many: true, result: truthValue, call: func(a []any) (any, error) {
		return !slices.ContainsFunc(a, func(v any) bool { return !truth(v) }), nil
	}},
	"or": {takes: []valueKind{anyValue}, many: true, result: truthValue, call: func(a []any) (any, error) {
		return slices.ContainsFunc(a, truth), nil
	}},
	"not":   {takes: []valueKind{anyValue}, result: truthValue, call: func(a []any) (any, error) { return !truth(a[0]), nil }},
	"eq":    {takes: []valueKind{anyValue, anyValue}, result: truthValue, call: func(a []any) (any, error) { return valueText(a[0]) == valueText(a[1]), nil }},
	"ne":    {takes: []valueKind{anyValue, anyValue}, result: truthValue, call: func(a []any) (any, error) { return valueText(a[0]) != valueText(a[1]), nil }},
	"lt":    {takes: []valueKind{numberValue, numberValue}, result: truthValue, call: func(a []any) (any, error) { return a[0].(int) < a[1].(int), nil }},
	"gt":    {takes: []valueKind{numberValue, numberValue}, result: truthValue, call: func(a []any) (any, error) { return a[0].(int) > a[1].(int), nil }},
	"add":   {takes: []valueKind{numberValue, numberValue}, result: numberValue, call: func(a []any) (any, error) { return a[0].(int) + a[1].(int), nil }},
	"pad":   {takes: []valueKind{numberValue, numberValue}, result: textValue, check: checkPad, call: func(a []any) (any, error) { return fmt.Sprintf("%0*d", a[0], a[1]), checkPad(a) }},
	"lower": {takes: []valueKind{textValue}, result: textValue, call: func(a []any) (any, error) { return strings.ToLower(a[0].(string)), nil }},
	"upper": {takes: []valueKind{textValue}, result: textValue, call: func(a []any) (any, error) { return strings.ToUpper(a[0].(string)), nil }},
	"trim":  {takes: []valueKind{textValue}, result: textValue, call: func(a []any) (any, error) { return strings.TrimSpace(a[0].(string)), nil }},
	"default": {takes: []valueKind{textValue, textValue}, result: textValue, call: func(a []any) (any, error) {
		if a[1] == "" {
			return a[0], nil
		}
		return a[1], nil
	}},
	"replace": {takes: []valueKind{textValue, textValue, textValue}, result: textValue, call: func(a []any) (any, error) {
		from, to, text := a[0].(string), a[1].(string), a[2].(string)
		if strings.Count(text, from)*len(to) > templateOutputMax {
			return nil, errTooLong
		}
		return strings.ReplaceAll(text, from, to), nil
	}},
}

// onMoment calls a method of a time, or returns empty for the zero time.
func onMoment[T any](args []any, empty T, method func(time.Time) T) T {
	t := args[0].(time.Time)
	if t.IsZero() {
		return empty
	}
	return method(t)
}

func momentNumber(method func(time.Time) int) function {
	return function{takes: []valueKind{momentValue}, result: numberValue, call: func(a []any) (any, error) {
		return onMoment(a, 0, method), nil
	}}
}

func parseSignedDuration(text string) (time.Duration, error) {
	sign := time.Duration(1)
	text, negative := strings.CutPrefix(text, "-")
	if negative {
		sign = -1
	}
	d, err := ParseDuration(text)
	if d == Forever {
		return 0, phrase.Mistake(phrase.MovedForever)
	}
	return sign * time.Duration(d), err
}

func checkAdd(constants []any) error {
	if text, ok := constants[1].(string); ok {
		_, err := parseSignedDuration(text)
		return err
	}
	return nil
}

func checkIn(constants []any) error {
	if text, ok := constants[1].(string); ok {
		_, err := cron.LoadZone(text)
		return err
	}
	return nil
}

// padMax is the widest that a number is padded to.
const padMax = 64

func checkPad(constants []any) error {
	if width, ok := constants[0].(int); ok && (width < 1 || width > padMax) {
		return phrase.Mistake(phrase.PadWidth.Of(padMax, width), phrase.PadForm)
	}
	return nil
}

// truth reports whether a value counts as true: a text or time that is not
// empty, a number that is not zero.
func truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case int:
		return v != 0
	case time.Time:
		return !v.IsZero()
	}
	return v != ""
}

// valueText returns a value as templates show it.
func valueText(v any) string {
	if t, ok := v.(time.Time); ok {
		return momentText(t)
	}
	return fmt.Sprint(v)
}

// momentText returns a time as RFC 3339, or nothing for none.
func momentText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// compiler makes expressions of the nodes of the template parser.
type compiler struct {
	params  []string
	secrets []string // the parameters that choose a secret
	// flow is set for steps of flows, whose templates may read the results in steps, or all if nil.
	// item is set if there is an item.
	flow, item bool
	// early is set for expressions that are evaluated before a node claims the step.
	early bool
	// onlyParams is set where nothing but the parameters is known.
	onlyParams bool
	// call is set where nothing but the call of a hook is known.
	call  bool
	steps map[string]bool
	uses  map[string]bool // the named steps; may be nil
	// strict refuses values that would decide what a command runs.
	strict bool
	free   string // of the Template
	// private is set where secrets are allowed; named receives their names.
	private bool
	named   map[string]bool
}

// pipe compiles a | b | c, where each value is the last argument of the next.
func (c *compiler) pipe(n *parse.PipeNode, depth int) (*expression, error) {
	if depth > templateDepthMax {
		return nil, phrase.Mistake(phrase.TooDeep.Of(templateDepthMax))
	}
	if len(n.Decl) > 0 {
		return nil, phrase.Mistake(phrase.NoVariables, phrase.WriteValue)
	}
	var value *expression
	for _, command := range n.Cmds {
		var err error
		if value, err = c.command(command, value, depth); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// command compiles a value, or a function or method with its arguments; the input of a
// pipe, if any, is the last one.
func (c *compiler) command(n *parse.CommandNode, piped *expression, depth int) (*expression, error) {
	given := n.Args[1:]
	if len(given) == 0 && piped == nil {
		return c.operand(n.Args[0], nil, depth)
	}
	args := make([]*expression, 0, len(given)+1)
	for _, arg := range given {
		e, err := c.operand(arg, nil, depth)
		if err != nil {
			return nil, err
		}
		args = append(args, e)
	}
	if piped != nil {
		args = append(args, piped)
	}
	return c.operand(n.Args[0], args, depth)
}

// operand compiles a value, or its call with arguments.
func (c *compiler) operand(n parse.Node, args []*expression, depth int) (*expression, error) {
	constant := func(kind valueKind, v any) (*expression, error) {
		if len(args) > 0 {
			return nil, phrase.Mistake(phrase.NotFunction.Of(n.String()))
		}
		text, isText := v.(string)
		return &expression{
			kind: kind, constant: true, source: n.String(),
			free: isText && !tamePattern.MatchString(text),
			eval: func(*TemplateData) (any, error) { return v, nil },
		}, nil
	}
	switch n := n.(type) {
	case *parse.StringNode:
		return constant(textValue, n.Text)
	case *parse.BoolNode:
		return constant(truthValue, n.True)
	case *parse.NumberNode:
		if !n.IsInt {
			return nil, phrase.Mistake(phrase.NotWhole.Of(n.String()))
		}
		return constant(numberValue, int(n.Int64))
	case *parse.FieldNode:
		return c.field(n, args)
	case *parse.ChainNode:
		e, err := c.operand(n.Node, nil, depth)
		if err != nil {
			return nil, err
		}
		return c.methods(e, n.Field, args)
	case *parse.PipeNode:
		if len(args) > 0 {
			return nil, phrase.Mistake(phrase.NotFunction.Of(n.String()))
		}
		return c.pipe(n, depth+1)
	case *parse.IdentifierNode:
		f, ok := functions[n.Ident]
		if !ok {
			names := slices.Sorted(maps.Keys(functions))
			return nil, phrase.Mistake(phrase.UnknownFunction.Of(quote(n.Ident)), nearest(n.Ident, names).Or(phrase.Functions.Of(names)))
		}
		return call(n.Ident, f, args)
	}
	return nil, phrase.Mistake(phrase.NoMeaningHere.Of(quote(n.String())), phrase.Example.Of("{{ .Scheduled }} or {{ .Param.name }}"))
}

// field compiles .Name and its suffix.
func (c *compiler) field(n *parse.FieldNode, args []*expression) (*expression, error) {
	name, rest := n.Ident[0], n.Ident[1:]
	if c.call {
		if name == "Body" || name == "Header" {
			return c.callValue(n, args)
		}
		return nil, phrase.Mistake(phrase.UnknownDotField.Of(name), phrase.Fields.Of(".Body, .Header", braces))
	}
	if name == "Param" {
		return c.param(rest, args)
	}
	if c.onlyParams {
		return nil, phrase.Mistake(phrase.UnknownDotField.Of(name), phrase.Fields.Of(".Param", braces))
	}
	if name == "Secret" {
		return c.secret(n, args)
	}
	switch {
	case name == "Steps" && c.flow:
		return c.step(n, args)
	case name == "Item" && c.item:
		return c.itemValue(n, args)
	}
	f, ok := rootFields[name]
	if ok && c.early && slices.Contains([]string{"Previous", "Next", "Node"}, name) {
		return nil, phrase.Mistake(phrase.UnknownBefore.Of(name), phrase.UseInRun)
	}
	if !ok {
		names := append(slices.Sorted(maps.Keys(rootFields)), "Param", "Secret")
		if c.flow {
			names = append(names, "Steps")
		}
		return nil, phrase.Mistake(phrase.UnknownDotField.Of(name), nearest(name, names).Or(phrase.Fields.Of("."+strings.Join(names, ", ."), braces)))
	}
	e := &expression{
		kind: f.kind, free: f.free, source: "." + name,
		eval: func(d *TemplateData) (any, error) { return f.get(d), nil },
	}
	return c.methods(e, rest, args)
}

func (c *compiler) param(rest []string, args []*expression) (*expression, error) {
	declared := phrase.Declared.Of(c.params)
	if len(c.params) == 0 {
		declared = phrase.NoParams
	}
	if len(rest) == 0 {
		return nil, phrase.Mistake(phrase.ParamNeedsName, declared)
	}
	name := rest[0]
	if !slices.Contains(c.params, name) {
		return nil, phrase.Mistake(phrase.UnknownParam.Of(name), nearest(name, c.params).Or(declared))
	}
	if slices.Contains(c.secrets, name) {
		switch {
		case !c.private || c.early:
			return nil, phrase.Mistake(phrase.SecretHere.Of(".Param."+name), phrase.SecretPlaces)
		case len(rest) > 1 || len(args) > 0:
			return nil, phrase.Mistake(phrase.Meaningless.Of(".Param."+strings.Join(rest, ".")), phrase.SecretAlone.Of("{{ .Param."+name+" }}"))
		}
		return secretOf(".Param."+name, func(d *TemplateData) string { return d.Params[name] }), nil
	}
	e := &expression{
		kind: textValue, free: true, source: ".Param." + name,
		eval: func(d *TemplateData) (any, error) { return d.Params[name], nil },
	}
	return c.methods(e, rest[1:], args)
}

// methods compiles a chain of methods of a value. The arguments belong to the
// last one.
func (c *compiler) methods(e *expression, names []string, args []*expression) (*expression, error) {
	if len(names) == 0 && len(args) > 0 {
		return nil, phrase.Mistake(phrase.NotFunction.Of(e.source))
	}
	for i, name := range names {
		if e.kind != momentValue {
			return nil, phrase.Mistake(phrase.HasNoMethod.Of(e.source, kindWords[e.kind], name))
		}
		f, ok := moments[name]
		if !ok {
			known := slices.Sorted(maps.Keys(moments))
			return nil, phrase.Mistake(phrase.TimeHasNo.Of(e.source, name), nearest(name, known).Or(phrase.Methods.Of("."+strings.Join(known, ", ."))))
		}
		all := []*expression{e}
		if i == len(names)-1 {
			all = append(all, args...)
		}
		var err error
		if e, err = call(e.source+"."+name, f, all); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// call compiles the call of a function and checks its arguments.
func call(name string, f function, args []*expression) (*expression, error) {
	method := strings.Contains(name, ".")
	if len(args) != len(f.takes) && (!f.many || len(args) < len(f.takes)) {
		want, got := f.takes, len(args)
		if method {
			want, got = want[1:], got-1
		}
		return nil, phrase.Mistake(phrase.WrongCount.Of(name, arguments(want), got))
	}
	constants := make([]any, len(args))
	free := false
	for i, arg := range args {
		want := f.takes[min(i, len(f.takes)-1)]
		if arg.kind == secretValue {
			return nil, secretAlone(arg)
		}
		if want != anyValue && want != arg.kind && arg.kind != foundValue {
			return nil, phrase.Mistake(phrase.WrongKind.Of(name, kindWords[want], arg.source, kindWords[arg.kind]))
		}
		if arg.constant {
			constants[i], _ = arg.eval(nil)
		}
		free = free || arg.free
	}
	if f.check != nil {
		if err := f.check(constants); err != nil {
			return nil, err
		}
	}
	return &expression{
		kind: f.result, free: free && f.result == textValue, source: name,
		eval: func(d *TemplateData) (any, error) {
			values := make([]any, len(args))
			for i, arg := range args {
				var err error
				if values[i], err = arg.eval(d); err != nil {
					return nil, err
				}
				if arg.kind == foundValue {
					if values[i], err = convert(values[i], f.takes[min(i, len(f.takes)-1)], arg.source); err != nil {
						return nil, err
					}
				}
			}
			return f.call(values)
		},
	}, nil
}

// arguments describes the arguments of a function.
func arguments(kinds []valueKind) phrase.Text {
	var list phrase.Text
	for i, kind := range kinds {
		if one := phrase.OneKind.Of(kindWords[kind]); i == 0 {
			list = one
		} else {
			list = phrase.MoreKinds.Of(list, one)
		}
	}
	switch len(kinds) {
	case 0:
		return phrase.NoArguments
	case 1:
		return phrase.OneArgument.Of(list)
	}
	return phrase.Arguments.Of(len(kinds), list)
}
