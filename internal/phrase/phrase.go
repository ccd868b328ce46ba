// Package phrase has what Belfry says of documents, expressions, configurations and imports: codes
// with arguments, each in English and Chinese. It is pure.
package phrase

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The languages of the catalogue.
const (
	English = "en"
	Chinese = "zh"
)

// Words is an argument that others have said: a library, an operating system or a person. It is
// never translated.
type Words string

// Quoted is an argument that a user wrote, said in quotes and cut if it is long.
type Quoted string

// Exact is [Quoted], never cut: its parts are counted in what is said of it.
type Exact string

// String returns the argument in quotes.
func (e Exact) String() string { return strconv.Quote(string(e)) }

// Span is a duration as [github.com/belfry-cron/belfry/job.Duration.InWords] says it: Chinese has
// its units in Chinese.
type Span string

// Moment is an instant as RFC 3339 has it, which [Text.At] says as its reader does.
type Moment string

// MomentOf returns the instant in UTC.
func MomentOf(t time.Time) Moment { return Moment(t.UTC().Format(time.RFC3339Nano)) }

var chineseUnits = strings.NewReplacer("forever", "永久", " ms", " 毫秒", " µs", " 微秒", " ns", " 纳秒", " min", " 分钟", " d", " 天", " h", " 小时", " s", " 秒")

// In returns the duration in a language.
func (s Span) In(lang string) string {
	if lang == Chinese {
		return chineseUnits.Replace(string(s))
	}
	return string(s)
}

// quotedMax is the most bytes of a value in a text: enough to recognise it.
const quotedMax = 80

func (q Quoted) cut() string {
	if len(q) > quotedMax {
		return strings.ToValidUTF8(string(q[:quotedMax]), "")
	}
	return string(q)
}

// String returns the argument in quotes, cut if it is long.
func (q Quoted) String() string {
	if len(q) > quotedMax {
		return strconv.Quote(q.cut()) + "…"
	}
	return strconv.Quote(string(q))
}

// Code is an entry of the catalogue. Its texts are written as [Fill] reads them.
type Code struct {
	Name    string
	English string
	Chinese string
	Args    []string // the names of the arguments in their order, as the texts name them
	kinds   []reflect.Type
}

var (
	catalogue []*Code
	byName    = map[string]*Code{}
)

// All returns the codes in the order of their names.
func All() []*Code {
	return slices.SortedFunc(slices.Values(catalogue), func(a, b *Code) int { return strings.Compare(a.Name, b.Name) })
}

func add(name, english, chinese string, kinds ...reflect.Type) *Code {
	c := &Code{Name: name, English: english, Chinese: chinese, Args: Names(english + chinese), kinds: kinds}
	catalogue, byName[name] = append(catalogue, c), c
	return c
}

// Text is a code with arguments. Making one is cheap, saying it is not. The zero value says nothing.
type Text struct {
	code *Code
	args []any
}

// IsZero reports whether there is no text.
func (t Text) IsZero() bool { return t.code == nil }

// Is reports whether two texts have one code.
func (t Text) Is(other Text) bool { return t.code == other.code }

// Code returns the code of a text, "" for none.
func (t Text) Code() string {
	if t.code == nil {
		return ""
	}
	return t.code.Name
}

// Args returns the arguments as JSON has them. A text among them is a map with code and args.
func (t Text) Args() map[string]any {
	if len(t.args) == 0 {
		return nil
	}
	args := make(map[string]any, len(t.args))
	for i, value := range t.args {
		switch v := value.(type) {
		case Quoted:
			if value = string(v); len(v) > quotedMax {
				value = v.cut() + "…"
			}
		case Words:
			value = string(v)
		case Exact:
			value = string(v)
		case Span:
			value = string(v)
		case Moment:
			value = string(v)
		case fmt.Stringer:
			value = v.String()
			if inner, isText := v.(Text); isText {
				if inner.IsZero() {
					continue
				}
				value = map[string]any{"code": inner.Code(), "args": inner.Args()}
			}
		}
		args[t.code.Args[i]] = value
	}
	return args
}

// At returns the text with its instants as at says them.
func (t Text) At(at func(time.Time) string) Text {
	args := slices.Clone(t.args)
	for i, value := range args {
		switch v := value.(type) {
		case Moment:
			if instant, err := time.Parse(time.RFC3339, string(v)); err == nil {
				args[i] = at(instant)
			}
		case Text:
			args[i] = v.At(at)
		}
	}
	return Text{t.code, args}
}

// String returns the text in English.
func (t Text) String() string { return t.In(English) }

// In returns the text in a language.
func (t Text) In(lang string) string {
	switch {
	case t.code == nil:
		return ""
	case lang == Chinese:
		return t.say(lang, t.code.Chinese)
	}
	return t.say(lang, t.code.English)
}

func (t Text) say(lang, text string) string {
	if len(t.args) == 0 {
		return text
	}
	return Fill(lang, text, func(name string) any { return t.args[slices.Index(t.code.Args, name)] }, func(value any) string {
		switch v := value.(type) {
		case Text:
			return v.In(lang)
		case Span:
			return v.In(lang)
		case []string:
			return Join(lang, v)
		case string:
			return printable(v)
		}
		return fmt.Sprint(value)
	})
}

// printable escapes characters that would break a line, as Go does, since texts repeat
// what a user wrote.
func printable(text string) string {
	if strings.IndexFunc(text, isUnprintable) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if isUnprintable(r) {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }

// Or returns the first text that says something.
func (t Text) Or(other Text) Text {
	if t.IsZero() {
		return other
	}
	return t
}

// Then returns both texts, or the one that says something.
func (t Text) Then(next Text) Text {
	if t.IsZero() || next.IsZero() {
		return t.Or(next)
	}
	return AndThen.Of(t, next)
}

// Of returns the text of a code and its arguments from JSON, and false if the catalogue has no such
// code or it has other arguments, as in another version of Belfry.
func Of(code string, args map[string]any) (Text, bool) {
	c := byName[code]
	if c == nil {
		return Text{}, false
	}
	t := Text{code: c}
	for i, name := range c.Args {
		value, ok := decoded(args[name], c.kinds[i])
		if !ok {
			return Text{}, false
		}
		t.args = append(t.args, value)
	}
	return t, true
}

func decoded(value any, kind reflect.Type) (any, bool) {
	text, isText := value.(string)
	switch kind {
	case reflect.TypeFor[string](), reflect.TypeFor[fmt.Stringer]():
		return text, isText
	case reflect.TypeFor[Quoted]():
		return Quoted(text), isText
	case reflect.TypeFor[Span]():
		return Span(text), isText
	case reflect.TypeFor[Moment]():
		return Moment(text), isText
	case reflect.TypeFor[Exact]():
		return Exact(text), isText
	case reflect.TypeFor[Words]():
		return Words(text), isText
	case reflect.TypeFor[int]():
		switch n := value.(type) {
		case json.Number:
			i, err := n.Int64()
			return int(i), err == nil
		case float64:
			return int(n), true
		case int:
			return n, true
		}
	case reflect.TypeFor[[]string]():
		if texts, isTexts := value.([]string); isTexts {
			return texts, true
		}
		list, isList := value.([]any)
		texts := make([]string, len(list))
		for i := range list {
			texts[i], _ = list[i].(string)
		}
		return texts, isList
	case reflect.TypeFor[Text]():
		inner, isInner := value.(map[string]any)
		if !isInner {
			return Text{}, value == nil
		}
		code, _ := inner["code"].(string)
		innerArgs, _ := inner["args"].(map[string]any)
		return Of(code, innerArgs)
	}
	return nil, false
}

// The codes by the number of their arguments: the compiler checks these.
type (
	code1[A any]          struct{ *Code }
	code2[A, B any]       struct{ *Code }
	code3[A, B, C any]    struct{ *Code }
	code4[A, B, C, D any] struct{ *Code }
)

func (c code1[A]) Of(a A) Text                         { return Text{c.Code, []any{a}} }
func (c code2[A, B]) Of(a A, b B) Text                 { return Text{c.Code, []any{a, b}} }
func (c code3[A, B, C]) Of(a A, b B, d C) Text         { return Text{c.Code, []any{a, b, d}} }
func (c code4[A, B, C, D]) Of(a A, b B, d C, e D) Text { return Text{c.Code, []any{a, b, d, e}} }

func none(name, english, chinese string) Text { return Text{code: add(name, english, chinese)} }

func one[A any](name, english, chinese string) code1[A] {
	return code1[A]{add(name, english, chinese, reflect.TypeFor[A]())}
}

func two[A, B any](name, english, chinese string) code2[A, B] {
	return code2[A, B]{add(name, english, chinese, reflect.TypeFor[A](), reflect.TypeFor[B]())}
}

func three[A, B, C any](name, english, chinese string) code3[A, B, C] {
	return code3[A, B, C]{add(name, english, chinese, reflect.TypeFor[A](), reflect.TypeFor[B](), reflect.TypeFor[C]())}
}

func four[A, B, C, D any](name, english, chinese string) code4[A, B, C, D] {
	return code4[A, B, C, D]{add(name, english, chinese, reflect.TypeFor[A](), reflect.TypeFor[B](), reflect.TypeFor[C](), reflect.TypeFor[D]())}
}
