// Package i18n has the texts of the web UI in English and Chinese. A text names its values in
// braces, such as {name}. Where an English text has a singular and a plural they are divided by
// a bar, and the value n decides.
package i18n

import (
	"fmt"
	"strings"
)

// Lang is a language.
type Lang string

// The languages.
const (
	English Lang = "en"
	Chinese Lang = "zh"
)

// Langs returns all languages.
func Langs() []Lang { return []Lang{English, Chinese} }

// text is a text in all languages.
type text struct{ key, en, zh string }

var byKey = func() map[string]text {
	all := make(map[string]text, len(catalogue))
	for _, t := range catalogue {
		all[t.key] = t
	}
	return all
}()

// Has reports whether there is a text.
func Has(key string) bool { return byKey[key].key != "" }

// Keys returns the keys of all texts.
func Keys() []string {
	keys := make([]string, 0, len(catalogue))
	for _, t := range catalogue {
		keys = append(keys, t.key)
	}
	return keys
}

// T returns a text with its values: pairs of a name and a value. A key without a text is
// returned as it is; a test finds those.
func (l Lang) T(key string, values ...any) string {
	t, ok := byKey[key]
	if !ok {
		return key
	}
	text := t.en
	if l == Chinese {
		text = t.zh
	}
	one, many, divided := strings.Cut(text, "|")
	if divided {
		text = many
	}
	for i := 0; i+1 < len(values); i += 2 {
		name, value := fmt.Sprint(values[i]), fmt.Sprint(values[i+1])
		if name == "n" && divided && value == "1" {
			text = one
		}
	}
	for i := 0; i+1 < len(values); i += 2 {
		text = strings.ReplaceAll(text, "{"+fmt.Sprint(values[i])+"}", fmt.Sprint(values[i+1]))
	}
	return text
}

// Choose returns the language of a reader: the one that was chosen, else the first known one
// of an Accept-Language header, else English.
func Choose(chosen, accepted string) Lang {
	for _, word := range append([]string{chosen}, strings.Split(accepted, ",")...) {
		tag, _, _ := strings.Cut(strings.TrimSpace(word), ";")
		main, _, _ := strings.Cut(strings.ToLower(tag), "-")
		for _, lang := range Langs() {
			if main == string(lang) {
				return lang
			}
		}
	}
	return English
}
