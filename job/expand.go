package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// visitor replaces a template.
type visitor func(kind TemplateKind, text string, at *path) string

// all returns a copy of a mapping with replaced values.
func (visit visitor) all(kind TemplateKind, texts map[string]string, at *path) map[string]string {
	copied := maps.Clone(texts)
	for _, name := range sortedKeys(reflect.ValueOf(texts)) {
		copied[name] = visit(kind, texts[name], at.field(name))
	}
	return copied
}

// expand returns a copy of the definition with every template replaced by visit.
func (r *RunSpec) expand(visit visitor) *RunSpec {
	expanded := RunSpec{}
	if w := r.work(); w != nil {
		expanded = w.expand(visit, root.field("run")).spec()
	}
	return &expanded
}

// paramNames returns the names of the declared parameters.
func (j *Job) paramNames() []string {
	if len(j.Params) == 0 { // most jobs have none, and each attempt asks
		return nil
	}
	return slices.Sorted(maps.Keys(j.Params))
}

// Expand returns the work of an attempt, with every template expanded. Missing parameters
// get their defaults; undeclared parameters are refused.
func (j *Job) Expand(data TemplateData) (*RunSpec, error) {
	params := make(map[string]string, len(j.Params))
	for name, param := range j.Params {
		params[name] = param.Default
	}
	for name, value := range data.Params {
		if _, ok := j.Params[name]; !ok {
			return nil, fmt.Errorf("job %s has no parameter %q", j.FullName(), name)
		}
		params[name] = value
	}
	data.Params = params

	var first error
	names, secrets := j.paramNames(), j.secretParams()
	expanded := j.Run.expand(func(kind TemplateKind, text string, at *path) string {
		t, err := compileTemplate(kind, text, &compiler{params: names, secrets: secrets, flow: data.Steps != nil, item: data.Item != nil})
		if err == nil {
			text, err = t.Execute(data)
		}
		if err != nil && first == nil {
			first = fmt.Errorf("%s: %w", at, err)
		}
		return text
	})
	if first != nil {
		return nil, first
	}
	return expanded, nil
}

// templates checks the templates of a job, and their expansion with sample data.
func (v *validator) templates(j *Job) {
	names, secrets := j.paramNames(), j.secretParams()
	sample := TemplateData{Attempt: 1, Shards: 1, Namespace: namespaceOf(j.Namespace), Name: j.Name, Node: "node"}
	sample.Scheduled = v.now
	strict := !j.Run.traits().unsafeParams
	v.refuse(len(j.SecretNames()) > SecretsOfJobMax, root.field("run"), phrase.TooManySecrets.Of(SecretsOfJobMax))
	j.Run.expand(func(kind TemplateKind, text string, at *path) string {
		v.templateOf(kind, text, at, &compiler{params: names, secrets: secrets, strict: strict}, &sample)
		return text
	})
}

// templateOf checks a template, and its expansion with sample data.
func (v *validator) templateOf(kind TemplateKind, text string, at *path, c *compiler, sample *TemplateData) {
	c.named = map[string]bool{}
	t, err := compileTemplate(kind, text, c)
	if err != nil {
		v.reportError(at, err)
		return
	}
	own := *sample
	own.Secrets = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.named)) {
		own.Secrets[name] = "secret"
		v.knowSecret(at, sample.Namespace, name)
	}
	sample = &own
	switch kind {
	case TemplateURL:
		if value, err := t.Execute(*sample); err == nil && value != "" {
			v.url(value, at)
		}
	case TemplateJSON:
		if value, err := t.Execute(*sample); err == nil {
			v.json(value, at)
		}
	}
}

func (v *validator) url(text string, at *path) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		v.report(at, phrase.NotURL.Of(phrase.Words(err.Error())))
	case u.Scheme != "http" && u.Scheme != "https":
		v.report(at, phrase.NotHTTP)
	case u.Hostname() == "":
		v.report(at, phrase.NoHost)
	}
}

// json checks a body that counts as JSON: one value, or several after another.
func (v *validator) json(text string, at *path) {
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		var value any
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			v.report(at, phrase.InvalidJSON.Of(phrase.Words(err.Error())), phrase.SetContentType)
			return
		}
	}
}
