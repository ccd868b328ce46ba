package phrase

import (
	"reflect"
	"slices"
	"strings"
)

// Fill fills in a text that names its arguments in braces, such as {node}; {n:run|runs} is the
// singular or plural by the argument n, and {names:or} a list whose last name stands behind that
// word. What stands in brackets is said only if its first argument is not empty.
func Fill(lang, text string, argument func(name string) any, say func(value any) string) string {
	var b strings.Builder
	for text != "" {
		at := strings.IndexAny(text, "{[")
		if at < 0 {
			b.WriteString(text)
			break
		}
		b.WriteString(text[:at])
		end := strings.IndexByte(text[at:], closing[text[at]]) + at
		part := text[at+1 : end]
		if text[at] == '[' {
			if !isEmpty(argument(Names(part)[0])) {
				b.WriteString(Fill(lang, part, argument, say))
			}
		} else if name, form, hasForm := strings.Cut(part, ":"); hasForm {
			b.WriteString(formed(lang, argument(name), form))
		} else {
			b.WriteString(say(argument(name)))
		}
		text = text[end+1:]
	}
	return b.String()
}

var closing = map[byte]byte{'{': '}', '[': ']'}

func isEmpty(value any) bool {
	list, isList := value.([]string)
	if text, isText := value.(Text); isText {
		return text.IsZero()
	}
	return value == nil || isList && len(list) == 0 || !isList && reflect.ValueOf(value).IsZero()
}

// formed returns the singular or plural of a number, or a list with a word before its last name.
func formed(lang string, value any, form string) string {
	one, many, isPlural := strings.Cut(form, "|")
	list, _ := value.([]string)
	switch {
	case !isPlural && len(list) > 1:
		last := len(list) - 1
		return Join(lang, list[:last]) + " " + form + " " + list[last]
	case !isPlural:
		return Join(lang, list)
	case value == 1 || len(list) == 1:
		return one
	}
	return many
}

// Join joins the names of a list.
func Join(lang string, list []string) string {
	if lang == Chinese {
		return strings.Join(list, "、")
	}
	return strings.Join(list, ", ")
}

// Names returns the arguments of a text, each once, in their order.
func Names(text string) (list []string) {
	for {
		_, after, found := strings.Cut(text, "{")
		if !found {
			return list
		}
		part, rest, _ := strings.Cut(after, "}")
		name, _, _ := strings.Cut(part, ":")
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
		text = rest
	}
}
