// Package reason has the codes of [job.Reason]: each with its arguments, its texts in English and
// Chinese, and advice. It is pure.
package reason

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// Words is an argument in the words of others: a command, a service, an operating system or a
// person. It is never translated.
type Words = phrase.Words

// The languages of the catalogue.
const (
	English = phrase.English
	Chinese = phrase.Chinese
)

// argument is the type of an argument of a code.
type argument interface {
	string | Words | []string | int | int64 | time.Time | time.Duration | job.ID | job.Outcome | job.Reason
}

// Code is an entry of the catalogue. Its texts name the arguments in braces, such as {node};
// {n:run|runs} is the singular or plural by the argument n. Text in brackets is omitted if its
// argument is empty.
type Code struct {
	Name        string
	English     string
	Chinese     string
	Do          string   // the advice, in English
	DoInChinese string   // the same
	Args        []string // argument names in the order of the English text
	kinds       []reflect.Type
	about       []string // arguments that are reasons to which the code only adds
}

var (
	catalogue []*Code
	byName    = map[string]*Code{}
)

// All returns the codes in the order of the catalogue.
func All() []*Code { return catalogue }

// Names returns the names of all codes.
func Names() []string {
	names := make([]string, len(catalogue))
	for i, c := range catalogue {
		names[i] = c.Name
	}
	return names
}

// Advice returns what to do about a reason, "" if there is nothing but to read it.
func Advice(r job.Reason) string {
	if c := byName[Label(r)]; c != nil && c.Name != job.ReasonText {
		return c.Do
	}
	return ""
}

// Unlisted is the label of codes that the catalogue lacks: another version of Belfry has them.
const Unlisted = "(others)"

// Label returns the most telling code of a reason, as the label of a metric: if its code only adds
// to another reason, such as not_retried, the code of that one.
func Label(r job.Reason) string {
	for {
		c := byName[r.Code()]
		if c == nil {
			return Unlisted
		}
		next := job.Reason{}
		for _, arg := range c.about {
			if inner := Inner(r, arg); next.IsZero() || next.Code() == job.ReasonText && !inner.IsZero() {
				next = inner
			}
		}
		if next.IsZero() {
			return c.Name
		}
		r = next
	}
}

// add adds a code to the catalogue.
func add(name, english, chinese string, do advice, kinds ...reflect.Type) *Code {
	c := &Code{Name: name, English: english, Chinese: chinese, Do: do.English, DoInChinese: do.Chinese, Args: phrase.Names(english), kinds: kinds}
	for i, arg := range c.Args {
		if kinds[i] == kindOf[job.Reason]() && (do == parts || strings.HasPrefix(english, "{"+arg+"}")) {
			c.about = append(c.about, arg)
		}
	}
	catalogue, byName[name] = append(catalogue, c), c
	return c
}

// Is reports whether a reason has the code.
func (c *Code) Is(r job.Reason) bool { return r.Code() == c.Name }

// Explains reports whether a reason has the code, or names one that has it as its cause.
func (c *Code) Explains(r job.Reason) bool { return c.Is(r) || c.Is(Inner(r, "why")) }

// Arg returns an argument of a reason with this code as text, "" for none.
func (c *Code) Arg(r job.Reason, name string) string {
	text, _ := r.Args()[name].(string)
	return text
}

// Inner returns a reason within another, none if it has none of that name.
func Inner(r job.Reason, name string) job.Reason {
	inner, _ := decoded(r.Args()[name], kindOf[job.Reason]())
	found, _ := inner.(job.Reason)
	return found
}

// of returns a reason with arguments in the order of the English text.
func (c *Code) of(values ...any) job.Reason {
	args := make(map[string]any, len(values))
	for i, value := range values {
		if !reflect.ValueOf(value).IsZero() {
			args[c.Args[i]] = encoded(value)
		} else if _, isNumber := value.(int); isNumber {
			args[c.Args[i]] = 0
		}
	}
	english := sayer{English, inUTC}
	return job.ReasonOf(english.say(c.English, c.valuesOf(values)), c.Name, args)
}

func (c *Code) valuesOf(values []any) map[string]any {
	by := make(map[string]any, len(values))
	for i, name := range c.Args {
		by[name] = values[i]
	}
	return by
}

// encoded returns an argument as JSON has it.
func encoded(value any) any {
	switch v := value.(type) {
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case time.Duration:
		return v.String()
	case job.ID:
		return v.String()
	case Words:
		return string(v)
	case job.Outcome:
		return string(v)
	case job.Reason:
		return map[string]any{"code": v.Code(), "args": v.Args()}
	}
	return value
}

// decoded returns an argument from JSON as its type, and false if it is not one.
func decoded(value any, kind reflect.Type) (any, bool) {
	if value == nil {
		return reflect.Zero(kind).Interface(), true
	}
	text, isText := value.(string)
	switch kind {
	case reflect.TypeFor[string](), reflect.TypeFor[Words]():
		return text, isText
	case reflect.TypeFor[job.Outcome]():
		return job.Outcome(text), isText
	case reflect.TypeFor[time.Time]():
		t, err := time.Parse(time.RFC3339Nano, text)
		return t, err == nil
	case reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		return d, err == nil
	case reflect.TypeFor[job.ID]():
		id, err := job.ParseID(text)
		return id, err == nil
	case reflect.TypeFor[int](), reflect.TypeFor[int64]():
		switch n := value.(type) {
		case json.Number:
			i, err := n.Int64()
			return int(i), err == nil
		case float64:
			return int(n), true
		case int:
			return n, true
		case string: // from a document
			i, err := strconv.Atoi(n)
			return i, err == nil
		}
	case reflect.TypeFor[[]string]():
		list, isList := value.([]any)
		texts := make([]string, len(list))
		for i := range list {
			texts[i], _ = list[i].(string)
		}
		return texts, isList
	case reflect.TypeFor[job.Reason]():
		of, isReason := value.(map[string]any)
		code, _ := of["code"].(string)
		args, _ := of["args"].(map[string]any)
		english := code
		if words, _ := args["text"].(string); code == job.ReasonText {
			english = words
		} else if c := byName[code]; c != nil {
			if values, ok := c.read(args); ok {
				english = sayer{English, inUTC}.say(c.English, values)
			}
		} else if text, known := phrase.Of(code, args); known {
			english = text.String()
		}
		return job.ReasonOf(english, code, args), isReason
	}
	return nil, false
}

// read returns the arguments of a code from JSON.
func (c *Code) read(args map[string]any) (map[string]any, bool) {
	values := make(map[string]any, len(c.Args))
	for i, name := range c.Args {
		value, ok := decoded(args[name], c.kinds[i])
		if !ok {
			return nil, false
		}
		values[name] = value
	}
	return values, true
}

func inUTC(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// In formats a reason in a language, with instants formatted by at, or in UTC if it is nil. A text,
// and a reason with an unknown code, stays unchanged.
func In(lang string, r job.Reason, at func(time.Time) string) string {
	if at == nil {
		at = inUTC
	}
	return sayer{lang, at}.reason(r)
}

// sayer writes reasons for a reader.
type sayer struct {
	lang string
	at   func(time.Time) string
}

func (s sayer) reason(r job.Reason) string {
	c := byName[r.Code()]
	if c == nil {
		if text, known := phrase.Of(r.Code(), r.Args()); known {
			return text.At(s.at).In(s.lang)
		}
		return r.String()
	}
	values, ok := c.read(r.Args())
	if !ok {
		return r.String()
	}
	if s.lang == Chinese {
		return s.say(c.Chinese, values)
	}
	return s.say(c.English, values)
}

// say fills in the arguments of a text.
func (s sayer) say(text string, values map[string]any) string {
	return phrase.Fill(s.lang, text, func(name string) any { return values[name] }, s.argument)
}

func (s sayer) argument(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case Words:
		return string(v)
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case time.Time:
		return s.at(v)
	case time.Duration:
		return phrase.Span(job.Duration(v).InWords()).In(s.lang)
	case job.ID:
		return v.String()
	case job.Outcome:
		if text, ok := outcomes[v]; ok && s.lang == Chinese {
			return text
		}
		return strings.ReplaceAll(string(v), "_", " ")
	case []string:
		return phrase.Join(s.lang, v)
	case job.Reason:
		return s.reason(v)
	}
	return ""
}

var outcomes = map[job.Outcome]string{
	job.OutcomeSucceeded: "成功", job.OutcomeFailed: "失败", job.OutcomeTimedOut: "超时", job.OutcomeCancelled: "已取消",
	job.OutcomeLost: "失联", job.OutcomeSkipped: "已跳过", job.OutcomeMissed: "已错过", job.OutcomeWithdrawn: "已撤回",
}

// The codes by the number of their arguments: the compiler checks these.
type (
	code0                   struct{ *Code }
	code1[A argument]       struct{ *Code }
	code2[A, B argument]    struct{ *Code }
	code3[A, B, C argument] struct{ *Code }

	code4[A, B, C, D argument]    struct{ *Code }
	code5[A, B, C, D, E argument] struct{ *Code }
)

func (c code0) Of() job.Reason                               { return c.of() }
func (c code1[A]) Of(a A) job.Reason                         { return c.of(a) }
func (c code2[A, B]) Of(a A, b B) job.Reason                 { return c.of(a, b) }
func (c code3[A, B, C]) Of(a A, b B, d C) job.Reason         { return c.of(a, b, d) }
func (c code4[A, B, C, D]) Of(a A, b B, d C, e D) job.Reason { return c.of(a, b, d, e) }

func (c code5[A, B, C, D, E]) Of(a A, b B, d C, e D, f E) job.Reason { return c.of(a, b, d, e, f) }

func five[A, B, C, D, E argument](name, english, chinese string, do advice) code5[A, B, C, D, E] {
	return code5[A, B, C, D, E]{add(name, english, chinese, do, kindOf[A](), kindOf[B](), kindOf[C](), kindOf[D](), kindOf[E]())}
}

func kindOf[T argument]() reflect.Type { return reflect.TypeFor[T]() }

func none(name, english, chinese string, do advice) code0 {
	return code0{add(name, english, chinese, do)}
}

func one[A argument](name, english, chinese string, do advice) code1[A] {
	return code1[A]{add(name, english, chinese, do, kindOf[A]())}
}

func two[A, B argument](name, english, chinese string, do advice) code2[A, B] {
	return code2[A, B]{add(name, english, chinese, do, kindOf[A](), kindOf[B]())}
}

func three[A, B, C argument](name, english, chinese string, do advice) code3[A, B, C] {
	return code3[A, B, C]{add(name, english, chinese, do, kindOf[A](), kindOf[B](), kindOf[C]())}
}

func four[A, B, C, D argument](name, english, chinese string, do advice) code4[A, B, C, D] {
	return code4[A, B, C, D]{add(name, english, chinese, do, kindOf[A](), kindOf[B](), kindOf[C](), kindOf[D]())}
}
