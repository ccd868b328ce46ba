package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template/parse"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Template is a text with actions in {{ }}, checked when it is compiled:
//
//	{{ .Scheduled }}  {{ .Previous }}  {{ .Next }}   times in the job's zone
//	{{ .Run }}  {{ .Attempt }}  {{ .Shard }}  {{ .Shards }}
//	{{ .Job }}  {{ .Namespace }}  {{ .Name }}  {{ .Node }}
//	{{ .Param.name }}                                a declared parameter
//	{{ .Secret.name }}                               a secret, where it stays private
//	{{ .Steps.name.Result.key }}  .Outcome  .Attempt   of a step of a flow that is over
//	{{ .Item }}  {{ .Item.key }}                     the item of a for_each
//	{{ .Scheduled.Format "2006-01-02" }}             a method of times
//	{{ (.Scheduled.AddDate 0 0 -1).Format "Jan" }}   date arithmetic
//	{{ .Param.name | lower }}                        a function
//	{{ if .Previous }}…{{ else }}…{{ end }}
//	{{ "{{" }}                                       the braces themselves
//
// The notation is a subset of text/template without loops, variables and nested templates,
// so that a template ends and its output is bounded.
//
// A value stays a value, whatever it contains. The necessary escaping depends on the kind
// of the template: see [TemplateKind].
//
// A Template does not change and may be shared between goroutines.
type Template struct {
	kind  TemplateKind
	parts []part
	fixed bool   // there are no actions
	free  string // the first value in it that may have any text; "" for none
}

// TemplateKind is the target of a template's text, which decides the escaping of its
// values.
type TemplateKind uint8

// The kinds of templates.
const (
	// TemplateText inserts values as they are: arguments of programs, which no shell reads,
	// and texts for users.
	TemplateText TemplateKind = iota

	// TemplatePrivate is like [TemplateText], for texts that only the command or the receiver
	// reads: variables of the environment, standard input, files and bodies. Secrets are
	// allowed, as in the headers and bodies of requests.
	TemplatePrivate

	// TemplateShell is a command for a POSIX shell. Outside of quotes each value is quoted,
	// so that it is one literal word of the command or part of one. Elsewhere (in quotes,
	// here-documents, comments, arithmetic, backquotes, ${ }, [[ ]] and uncertain places)
	// only values of harmless characters are accepted: numbers, times, and the names of
	// jobs and runs, but no parameters. A command may still treat its words as code: eval,
	// sh -c and ssh do.
	TemplateShell

	// TemplateURL is an address. Values are escaped for the path or the query, and are not
	// allowed in scheme and host.
	TemplateURL

	// TemplateHeader is the value of a header, without line breaks.
	TemplateHeader

	// TemplateJSON is a JSON text. Inside of a string values are escaped,
	// elsewhere they are a number, a truth value or a string of their own.
	TemplateJSON

	// TemplateForm is a body of the type application/x-www-form-urlencoded.
	TemplateForm

	// TemplateXML is an XML or HTML text. Special characters of values are escaped.
	TemplateXML
)

const (
	// templateOutputMax is the most bytes of a template's output: systems accept little
	// more as a command line, and bodies have the same bound.
	templateOutputMax = 2 << 20
	// templateDepthMax is the deepest nesting of ifs and parentheses: far
	// more than a person can read.
	templateDepthMax = 50
)

// TemplateData is the data for the actions of a template.
type TemplateData struct {
	Scheduled time.Time // in the job's zone, like the next two
	Previous  time.Time // the previous scheduled time; zero for none
	Next      time.Time // the next scheduled time; zero for none

	Run       ID
	Attempt   int
	Shard     int // from 0
	Shards    int // 1 if the occurrence is not split
	Namespace string
	Name      string
	Node      string
	Params    map[string]string
	Secrets   map[string]string // secrets of the job

	// Steps are the finished steps of a flow, by name; nil outside of flows. Item is the
	// item of a for_each, nil for none, and Index its position.
	Steps map[string]StepData
	Item  json.RawMessage
	Index int

	// Trace is the trace of the attempt.
	Trace Trace

	// Call is the call of a hook.
	Call Call
}

// StepData is the data of a finished step for templates.
type StepData struct {
	Outcome Outcome
	Attempt int
	Result  json.RawMessage // nil for none
}

// Environment returns the environment variables that every command receives in addition
// to its own.
func (d TemplateData) Environment() map[string]string {
	env := map[string]string{
		variablePrefix + "JOB":       d.Namespace + "/" + d.Name,
		variablePrefix + "NAMESPACE": d.Namespace,
		variablePrefix + "NAME":      d.Name,
		variablePrefix + "NODE":      d.Node,
		variablePrefix + "RUN":       d.Run.String(),
		variablePrefix + "ATTEMPT":   fmt.Sprint(d.Attempt),
		variablePrefix + "SHARD":     fmt.Sprint(d.Shard),
		variablePrefix + "SHARDS":    fmt.Sprint(d.Shards),
		variablePrefix + "SCHEDULED": momentText(d.Scheduled),
		variablePrefix + "PREVIOUS":  momentText(d.Previous),
		variablePrefix + "NEXT":      momentText(d.Next),
	}
	for name, value := range d.Params {
		env[ParamVariable(name)] = value
	}
	for name, value := range d.Trace.Headers() {
		env[strings.ToUpper(name)] = value
	}
	if d.Item != nil {
		env[variablePrefix+"ITEM"] = valueText(plainOfJSON(d.Item))
		env[variablePrefix+"ITEM_INDEX"] = fmt.Sprint(d.Index)
	}
	return env
}

// braces is how a template writes braces.
const braces = `{{"{{"}}`

// part is a piece of a compiled template: a text, a value with its escaper, or a choice.
type part struct {
	text string

	value  *expression
	escape escaper

	condition       *expression
	then, otherwise []part
}

// escaper turns a value into the text that may appear at its place in the output.
type escaper func(v any) (string, error)

// placement follows the text of a template and returns the escaper for a value at the
// current position.
type placement interface {
	text(text string)
	value(e *expression) (escaper, error)
	// branch returns a copy for a branch of an if, and join merges the states after two
	// branches.
	branch() placement
	join(other placement)
}

// CompileTemplate checks a template and prepares it. Params are the names of
// the parameters that it may use.
func CompileTemplate(kind TemplateKind, text string, params []string) (*Template, error) {
	return compileTemplate(kind, text, &compiler{params: params})
}

func compileTemplate(kind TemplateKind, text string, c *compiler) (*Template, error) {
	if !strings.Contains(text, "{{") {
		return &Template{kind: kind, parts: []part{{text: text}}, fixed: true}, nil
	}
	c.private = kind != TemplateText && kind != TemplateShell && kind != TemplateURL
	tree := parse.New("template")
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	if _, err := tree.Parse(text, "", "", trees); err != nil {
		return nil, parseError(err)
	}
	if len(trees) > 1 {
		return nil, phrase.Mistake(phrase.NoDefine)
	}
	parts, err := c.list(tree.Root, newPlacement(kind, c.strict), 0)
	if err != nil {
		return nil, err
	}
	return &Template{kind: kind, parts: parts, free: c.free}, nil
}

// parseError rewords an error of the template parser, which begins with the name of the
// template.
func parseError(err error) error {
	message := strings.TrimPrefix(err.Error(), "template: template:")
	if line, rest, ok := strings.Cut(message, ": "); ok {
		message = rest
		if line != "1" {
			message += " in line " + line
		}
	}
	return phrase.Mistake(phrase.NotTemplate.Of(phrase.Words(message)), phrase.Braces.Of(braces))
}

func newPlacement(kind TemplateKind, strict bool) placement {
	switch kind {
	case TemplateShell:
		return newShellPlacement(strict)
	case TemplateURL:
		return &urlPlacement{}
	case TemplateJSON:
		return &jsonPlacement{}
	case TemplateHeader:
		return anywhere{escapeHeader}
	case TemplateForm:
		return anywhere{escapeForm}
	case TemplateXML:
		return anywhere{escapeXML}
	}
	return anywhere{escapeNothing}
}

// list compiles the nodes of a template or of a branch.
func (c *compiler) list(list *parse.ListNode, at placement, depth int) ([]part, error) {
	if list == nil {
		return nil, nil
	}
	if depth > templateDepthMax {
		return nil, phrase.Mistake(phrase.TooDeep.Of(templateDepthMax))
	}
	var parts []part
	for _, n := range list.Nodes {
		var p part
		var err error
		switch n := n.(type) {
		case *parse.TextNode:
			p.text = string(n.Text)
			at.text(p.text)
		case *parse.ActionNode:
			if text, ok := constantText(n.Pipe); ok {
				p.text = text
				at.text(text)
				break
			}
			if p.value, err = c.pipe(n.Pipe, 0); err == nil {
				if p.value.free && c.free == "" {
					c.free = p.value.source
				}
				p.escape, err = at.value(p.value)
				if p.value.kind == secretValue {
					p.escape = silent(p.escape, p.value.source)
				}
			}
		case *parse.IfNode:
			p, err = c.choice(n, at, depth)
		default:
			err = phrase.Mistake(phrase.NotInTemplates.Of(quote(firstWord(n.String()))), phrase.TemplateParts)
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func (c *compiler) choice(n *parse.IfNode, at placement, depth int) (p part, err error) {
	if p.condition, err = c.pipe(n.Pipe, 0); err != nil {
		return p, err
	}
	if p.condition.kind == secretValue {
		return p, secretAlone(p.condition)
	}
	other := at.branch()
	if p.then, err = c.list(n.List, at, depth+1); err != nil {
		return p, err
	}
	if p.otherwise, err = c.list(n.ElseList, other, depth+1); err != nil {
		return p, err
	}
	at.join(other)
	return p, nil
}

// constantText returns the text of an action that is only a constant, such as {{"{{"}}. It counts
// as text of the template.
func constantText(pipe *parse.PipeNode) (string, bool) {
	if len(pipe.Decl) > 0 || len(pipe.Cmds) != 1 || len(pipe.Cmds[0].Args) != 1 {
		return "", false
	}
	s, ok := pipe.Cmds[0].Args[0].(*parse.StringNode)
	if !ok {
		return "", false
	}
	return s.Text, true
}

func firstWord(text string) string {
	text = strings.TrimLeft(text, "{- ")
	return text[:len(text)-len(strings.TrimLeft(text, "abcdefghijklmnopqrstuvwxyz"))]
}

var errTooLong = errors.New("makes more than 2 MiB")

// Execute returns the text of the template with data. It fails if a value is not allowed at
// its position, such as a NUL byte in a command.
func (t *Template) Execute(data TemplateData) (string, error) {
	var b strings.Builder
	if err := execute(&b, t.parts, &data); err != nil {
		return "", fmt.Errorf("expand template: %w", err)
	}
	if t.kind == TemplateURL && !t.fixed {
		if err := checkPath(b.String()); err != nil {
			return "", fmt.Errorf("expand template: %w", err)
		}
	}
	return b.String(), nil
}

func execute(b *strings.Builder, parts []part, data *TemplateData) error {
	for _, p := range parts {
		switch {
		case p.condition != nil:
			v, err := p.condition.eval(data)
			if err != nil {
				return err
			}
			branch := p.then
			if !truth(v) {
				branch = p.otherwise
			}
			if err := execute(b, branch, data); err != nil {
				return err
			}
		case p.value != nil:
			v, err := p.value.eval(data)
			if err != nil {
				return err
			}
			text, err := p.escape(v)
			if err != nil {
				return err
			}
			b.WriteString(text)
		default:
			b.WriteString(p.text)
		}
		if b.Len() > templateOutputMax {
			return errTooLong
		}
	}
	return nil
}
