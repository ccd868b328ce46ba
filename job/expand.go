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
)

// BodyKind returns what the body of the request is, and so how values in it
// are escaped: what the Content-Type says or, where there is none, JSON if it
// begins like an object or array.
func (h *HTTP) BodyKind() TemplateKind {
	for name, value := range h.Headers {
		if strings.EqualFold(name, "Content-Type") {
			value = strings.ToLower(value)
			switch {
			case strings.Contains(value, "json"):
				return TemplateJSON
			case strings.Contains(value, "x-www-form-urlencoded"):
				return TemplateForm
			}
			return TemplateText
		}
	}
	body := strings.TrimSpace(h.Body)
	if strings.HasPrefix(body, "[") || strings.HasPrefix(body, "{") && !strings.HasPrefix(body, "{{") {
		return TemplateJSON
	}
	return TemplateText
}

// expand returns a copy of what is run in which visit has replaced every
// template. It is the one place that knows which fields are templates, and of
// which kind.
func (r *RunSpec) expand(visit func(kind TemplateKind, text string, at *path) string) *RunSpec {
	expanded := *r
	at := root.field("run")
	all := func(kind TemplateKind, texts map[string]string, at *path) map[string]string {
		copied := maps.Clone(texts)
		for _, name := range sortedKeys(reflect.ValueOf(texts)) {
			copied[name] = visit(kind, texts[name], at.field(name))
		}
		return copied
	}
	if r.Shell != nil {
		shell := *r.Shell
		kind := TemplateShell
		if len(shell.Args) > 0 {
			kind = TemplateText // no shell reads it
		}
		shell.Command = visit(kind, shell.Command, at.at("shell.command"))
		shell.Args = slices.Clone(shell.Args)
		for i, arg := range shell.Args {
			shell.Args[i] = visit(TemplateText, arg, at.at("shell.args").item(i))
		}
		expanded.Shell = &shell
	}
	if r.HTTP != nil {
		http := *r.HTTP
		http.URL = visit(TemplateURL, http.URL, at.at("http.url"))
		http.Headers = all(TemplateHeader, http.Headers, at.at("http.headers"))
		http.Body = visit(r.HTTP.BodyKind(), http.Body, at.at("http.body"))
		expanded.HTTP = &http
	}
	expanded.Env = all(TemplateText, r.Env, at.field("env"))
	expanded.Stdin = visit(TemplateText, r.Stdin, at.field("stdin"))
	return &expanded
}

// paramNames returns the names of the declared parameters.
func (j *Job) paramNames() []string { return slices.Sorted(maps.Keys(j.Params)) }

// Expand returns what an attempt runs, with every template expanded. Parameters
// that data does not have get their defaults; those that the job does not
// declare are refused.
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
	names := j.paramNames()
	expanded := j.Run.expand(func(kind TemplateKind, text string, at *path) string {
		t, err := CompileTemplate(kind, text, names)
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

// templates checks the templates of a job, and what they make of some data.
func (v *validator) templates(j *Job) {
	names := j.paramNames()
	sample := TemplateData{Attempt: 1, Shards: 1, Namespace: namespaceOf(j.Namespace), Name: j.Name, Node: "node"}
	sample.Scheduled = v.now
	j.Run.expand(func(kind TemplateKind, text string, at *path) string {
		t, err := CompileTemplate(kind, text, names)
		if err != nil {
			v.reportError(at, err)
			return text
		}
		switch kind {
		case TemplateURL:
			if made, err := t.Execute(sample); err == nil && made != "" {
				v.url(made, at)
			}
		case TemplateJSON:
			if made, err := t.Execute(sample); err == nil {
				v.json(made, at)
			}
		}
		return text
	})
}

func (v *validator) url(made string, at *path) {
	u, err := url.Parse(made)
	switch {
	case err != nil:
		v.report(at, "is not a URL: "+err.Error(), "")
	case u.Scheme != "http" && u.Scheme != "https":
		v.report(at, "must begin with http:// or https://", "")
	case u.Hostname() == "":
		v.report(at, "has no host", "")
	}
}

// json checks a body that counts as JSON: one value, or several after another.
func (v *validator) json(made string, at *path) {
	decoder := json.NewDecoder(strings.NewReader(made))
	for {
		var value any
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			v.report(at, "is not valid JSON: "+err.Error(), "set the header Content-Type if it is something else")
			return
		}
	}
}
