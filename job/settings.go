package job

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// CheckSettings reports the problems that [DecodeSettings] would, in the struct that settings
// points to, for settings from other sources than a file: values out of bounds and unknown
// names. The error is of type [Problems].
func CheckSettings(settings any) error {
	v := &validator{}
	v.bounds(reflect.ValueOf(settings).Elem(), root)
	return v.problems.asError()
}

// DecodeSettings reads one YAML or JSON mapping into the struct that settings points to, by
// the rules and tags of documents: unknown fields, values of a wrong type and numbers out
// of bounds are mistakes, each with its position. It is for other files with durations and
// policies, such as the configuration of a server. An empty file sets nothing.
//
// The error is of type [Problems].
func DecodeSettings(file string, data []byte, settings any) error {
	d := &decoder{file: file}
	roots := d.parse(data)
	if len(d.problems) > 0 {
		return d.problems.asError()
	}
	if len(roots) > 1 {
		d.report(roots[1], root, phrase.SecondDocument, phrase.LeaveOutLine)
		return d.problems.asError()
	}
	if len(roots) == 0 || roots[0].kind == nullNode {
		return nil
	}
	value := reflect.ValueOf(settings).Elem()
	d.decodeStruct(roots[0], value, root)
	wrong := map[string]bool{} // values of unreadable fields are not checked
	for _, p := range d.problems {
		wrong[p.Path] = true
	}
	v := &validator{doc: Document{File: file, source: roots[0]}}
	v.bounds(value, root)
	for _, p := range v.problems {
		if !wrong[p.Path] {
			d.problems = append(d.problems, p)
		}
	}
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.problems.asError()
}
