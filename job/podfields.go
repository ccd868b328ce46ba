package job

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// podFields has a line for each type in a pod template of Kubernetes, with its fields and their types.
// test/kubernetes/pods writes it.
//
//go:embed podfields.txt
var podFields string

// podTemplate is the type of the whole template in podFields.
const podTemplate = "PodTemplateSpec"

// podTypes returns the types of pod templates: the type of each field by its name.
var podTypes = sync.OnceValue(func() map[string]map[string]string {
	types := map[string]map[string]string{}
	for line := range strings.Lines(podFields) {
		words := strings.Fields(line)
		fields := make(map[string]string, len(words)-1)
		for _, word := range words[1:] {
			name, kind, _ := strings.Cut(word, ":")
			fields[name] = kind
		}
		types[words[0]] = fields
	}
	return types
})

// podQuantity matches amounts of resources.
var podQuantity = regexp.MustCompile(`^[+-]?[0-9]*\.?[0-9]*([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?$`)

// checkPod checks the names and types of the fields in a part of a pod template.
func (v *validator) checkPod(value any, kind string, at *path) {
	expect := func(want phrase.Text) { v.report(at, phrase.Expected.Of(want, podValue(value))) }
	if value == nil {
		return
	}
	if item, isList := strings.CutPrefix(kind, "[]"); isList {
		list, ok := value.([]any)
		if !ok {
			expect(phrase.AList)
		}
		for i := range list {
			v.checkPod(list[i], item, at.item(i))
		}
		return
	}
	item, isMap := strings.CutPrefix(kind, "{}")
	fields := podTypes()[kind]
	if isMap || fields != nil {
		mapping, ok := value.(map[string]any)
		if !ok {
			expect(phrase.AMapping)
		}
		for _, name := range slices.Sorted(maps.Keys(mapping)) {
			of, known := fields[name]
			switch {
			case isMap:
				v.checkPod(mapping[name], item, at.field(name))
			case known:
				v.checkPod(mapping[name], of, at.field(name))
			default:
				v.unknownPodField(name, fields, at.field(name))
			}
		}
		return
	}
	text, isText := value.(string)
	_, isWhole := value.(int)
	switch kind {
	case "text":
		if _, isTime := value.(time.Time); !isText && !isTime {
			expect(phrase.AText)
		}
	case "truth":
		if _, ok := value.(bool); !ok {
			expect(phrase.ABool)
		}
	case "number":
		if !isWhole {
			expect(phrase.AWholeNumber)
		}
	case "port":
		if !isWhole && !isText {
			expect(phrase.APodPort)
		}
	case "quantity":
		if _, isFloat := value.(float64); !isWhole && !isFloat && (!isText || !IsTemplate(text) && !podQuantity.MatchString(text)) {
			expect(phrase.AQuantity)
		}
	}
}

func (v *validator) unknownPodField(name string, fields map[string]string, at *path) {
	var hint phrase.Text
	if len(v.problems) < hintsMax {
		names := slices.Sorted(maps.Keys(fields))
		hint = nearest(name, names).Or(phrase.Known.Of(names))
	}
	v.report(at, phrase.UnknownField.Of(quote(name)), hint)
}

// podValue describes a value where another one was expected.
func podValue(value any) phrase.Text {
	switch value := value.(type) {
	case []any:
		return phrase.AList
	case map[string]any:
		return phrase.AMapping
	case string:
		return phrase.TheText.Of(quote(value))
	}
	return phrase.TheWord.Of(quote(fmt.Sprint(value)))
}
