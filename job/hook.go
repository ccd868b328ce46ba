package job

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Hook lets another program start a job with a request that it signs.
type Hook struct {
	Namespace   string            `json:"namespace,omitzero" max:"128" doc:"The namespace of the hook, of its job and of its secret. Default: default."`
	Name        string            `json:"name" max:"128" doc:"The name of the hook."`
	Description string            `json:"description,omitzero" max:"4096" doc:"What the hook is for."`
	Labels      map[string]string `json:"labels,omitzero" items:"64" doc:"Labels by which to find and group hooks."`
	Job         string            `json:"job" max:"128" doc:"The name of the job that a call starts."`
	From        HookForm          `json:"from" doc:"How a caller proves that it knows the secret."`
	Secret      string            `json:"secret" max:"64" doc:"The name of the secret in the namespace. With standard its value is whsec_ and a key in base64."`
	If          string            `json:"if,omitzero" max:"4096" doc:"A template that is true or false. A call for which it is false starts nothing. Default: each call starts a run."`
	Params      map[string]string `json:"params,omitzero" items:"256" max:"65536" doc:"Parameters of the run by name, as templates."`
	Allow       []string          `json:"allow,omitzero" items:"256" max:"64" doc:"Addresses and ranges of addresses from which calls are taken, for example 192.30.252.0/22. Behind a proxy all calls have its address. Default: all."`
	Paused      bool              `json:"paused,omitzero" doc:"Calls start nothing."`
	UID         ID                `json:"uid,omitzero" doc:"Read-only. The identity of the hook, which its address contains."`
	Version     int64             `json:"version,omitzero" min:"1" doc:"Read-only. Every change of the hook increments it."`
	Source      *Source           `json:"source,omitzero" doc:"Read-only. The commit of a repository that the hook is of."`
}

// FullName returns "namespace/name".
func (h *Hook) FullName() string { return fullName(h.Namespace, h.Name) }

// Address returns the path at which the hook is called. With the form url its secret follows.
func (h *Hook) Address() string {
	if h.From == HookURL {
		return "/hooks/" + h.UID.String() + "/SECRET"
	}
	return "/hooks/" + h.UID.String()
}

// Takes reports whether calls from an address are taken.
func (h *Hook) Takes(from netip.Addr) bool {
	return len(h.Allow) == 0 || slices.ContainsFunc(h.Allow, func(text string) bool {
		p, err := ParsePrefix(text)
		return err == nil && p.Contains(from.Unmap())
	})
}

// ParsePrefix reads an address or a range of addresses.
func ParsePrefix(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		return ip.Prefix(ip.BitLen())
	}
	return netip.ParsePrefix(text)
}

// HookForm is how the caller of a hook proves that it knows the secret.
type HookForm string

// The forms of calls.
const (
	HookGitHub   HookForm = "github"   // X-Hub-Signature-256 of the body
	HookGitLab   HookForm = "gitlab"   // the secret itself in X-Gitlab-Token
	HookStripe   HookForm = "stripe"   // Stripe-Signature of a time and the body
	HookStandard HookForm = "standard" // webhook-signature of an id, a time and the body
	HookURL      HookForm = "url"      // the secret at the end of the address
)

// Values returns all forms of calls.
func (HookForm) Values() []string {
	return texts(HookGitHub, HookGitLab, HookStripe, HookStandard, HookURL)
}

// hookCompiler is for the templates of a hook, which know nothing but the call.
func hookCompiler() *compiler { return &compiler{call: true} }

// hookDocument checks a hook.
func (v *validator) hookDocument(h *Hook) {
	v.labels(h.Labels, root.field("labels"))
	v.refuse(h.Job == "", root.field("job"), phrase.Missing, phrase.HookJobForm)
	v.refuse(h.From == "", root.field("from"), phrase.Missing, phrase.List.Of(h.From.Values()))
	v.refuse(h.Secret == "", root.field("secret"), phrase.Missing, phrase.SetSecret.Of("hook_"+h.Name))
	v.refuse(h.Job != "" && !isName(h.Job), root.field("job"), phrase.NotJobName.Of(quote(h.Job)), phrase.HookJobForm)
	switch at := root.field("secret"); {
	case h.Secret == "":
	case !IsSecretName(h.Secret):
		v.report(at, phrase.NotSecretName.Of(quote(h.Secret)), phrase.SecretNameForm.Of(SecretNameMax))
	default:
		v.knowSecret(at, namespaceOf(h.Namespace), h.Secret)
	}
	for i, text := range h.Allow {
		_, err := ParsePrefix(text)
		v.refuse(err != nil, root.field("allow").item(i), phrase.NotPrefix.Of(quote(text)), phrase.Example.Of("192.30.252.0/22"))
	}
	check := func(text string, at *path) {
		if _, err := compileTemplate(TemplateText, text, hookCompiler()); err != nil {
			v.reportError(at, err)
		}
	}
	check(h.If, root.field("if"))
	for _, name := range slices.Sorted(maps.Keys(h.Params)) {
		at := root.field("params").field(name)
		v.refuse(!paramPattern.MatchString(name), at, phrase.NotParam.Of(quote(name)), phrase.ParamForm)
		check(h.Params[name], at)
	}
}

// Call is what the templates of a hook know: the headers of a call by their names in lower case with
// underscores, as a JSON object, and its body.
type Call struct{ Header, Body json.RawMessage }

// Read returns whether a call passes the filter of the hook, and the parameters of its run. The field
// is the one whose template fails.
func (h *Hook) Read(call Call) (passes bool, params map[string]string, field string, err error) {
	data := &TemplateData{Call: call}
	text := func(template string) (string, error) {
		t, err := compileTemplate(TemplateText, template, hookCompiler())
		if err != nil {
			return "", err
		}
		return t.Execute(*data)
	}
	if h.If != "" {
		value, err := text(h.If)
		if err == nil {
			passes, err = conditionOf(value)
		}
		if err != nil || !passes {
			return false, nil, "if", err
		}
	}
	params = make(map[string]string, len(h.Params))
	for _, name := range slices.Sorted(maps.Keys(h.Params)) {
		if params[name], err = text(h.Params[name]); err != nil {
			return false, nil, "params." + name, err
		}
	}
	return true, params, "", nil
}

// conditionOf returns the value of the text of an if.
func conditionOf(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%s is neither true nor false", quote(shortened(text)))
}
