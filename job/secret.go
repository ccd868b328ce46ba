package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Secrets in templates: {{ .Secret.name }}, alone and only where no one but the command or
// the receiver reads it.

const (
	// SecretNameMax is the longest name of a secret: with the longest namespace it fits into
	// the name of a note.
	SecretNameMax = 64
	// SecretMax is the most bytes of a secret: certificates, keys and credential files
	// are smaller.
	SecretMax = 64 << 10
	// SecretsOfJobMax bounds the secrets of a job: an attempt reads all of them before it starts.
	SecretsOfJobMax = 50
)

const (
	secretFirst  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	secretOthers = secretFirst + "0123456789"
)

// IsSecretName reports whether a name is valid for a secret: letters, digits and
// underscores, as in templates and variables.
func IsSecretName(name string) bool { return hasForm(name, SecretNameMax, secretFirst, secretOthers) }

// secret compiles .Secret.name.
func (c *compiler) secret(n *parse.FieldNode, args []*expression) (*expression, error) {
	switch {
	case len(n.Ident) != 2 || len(args) > 0:
		return nil, phrase.Mistake(phrase.Meaningless.Of(n.String()), phrase.SecretAlone.Of("{{ .Secret.name }}"))
	case !c.private || c.early:
		return nil, phrase.Mistake(phrase.SecretHere.Of(n.String()), phrase.SecretPlaces)
	case !IsSecretName(n.Ident[1]):
		return nil, phrase.Mistake(phrase.NotSecretName.Of(quote(n.Ident[1])), phrase.SecretNameForm.Of(SecretNameMax))
	}
	name := n.Ident[1]
	if c.named != nil {
		c.named[name] = true
	}
	return secretOf(n.String(), func(*TemplateData) string { return name }), nil
}

// secretOf is the value of the secret that name returns.
func secretOf(source string, name func(d *TemplateData) string) *expression {
	return &expression{
		kind: secretValue, free: true, source: source,
		eval: func(d *TemplateData) (any, error) {
			value, ok := d.Secrets[name(d)]
			if !ok {
				return nil, fmt.Errorf("there is no value for %s", source)
			}
			return value, nil
		},
	}
}

// secretAlone refuses to compute with a secret: its output would not be masked.
func secretAlone(e *expression) error {
	return phrase.Mistake(phrase.SecretInFunction.Of(e.source), phrase.WriteAlone.Of("{{ "+e.source+" }}"))
}

// silent keeps a secret out of an escaper's error messages.
func silent(escape escaper, source string) escaper {
	if escape == nil {
		return nil
	}
	return func(v any) (string, error) {
		text, err := escape(v)
		if err != nil {
			return "", fmt.Errorf("the value of %s has a character that is not allowed here, such as a line break in a header", source)
		}
		return text, nil
	}
}

// knowSecret reports an unknown secret.
func (v *validator) knowSecret(at *path, namespace, name string) {
	if v.unknownSecret != nil {
		if why := v.unknownSecret(namespace, name); !why.IsZero() && !v.doc.isBroken(at.String(), false) {
			v.record(at, why, phraseReason(phrase.SetSecret.Of(name)))
		}
	}
}

// SecretNames returns the names of the secrets in the templates of the job, or of the steps
// of its flow, and those that its parameters can choose.
func (j *Job) SecretNames() []string {
	named := j.templateSecrets()
	for _, name := range j.secretParams() {
		for _, choice := range j.Params[name].Values {
			named = with(named, choice)
		}
	}
	if len(named) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(named))
}

// with adds a name to a set, which may be nil.
func with(set map[string]bool, name string) map[string]bool {
	if set == nil {
		set = map[string]bool{}
	}
	set[name] = true
	return set
}

// templateSecrets returns the secrets in templates, nil for none.
func (j *Job) templateSecrets() map[string]bool {
	var named map[string]bool // most jobs have none
	visit := func(kind TemplateKind, text string, _ *path) string {
		if strings.Contains(text, ".Secret.") {
			if named == nil {
				named = map[string]bool{}
			}
			// Invalid templates name no secrets.
			_, _ = compileTemplate(kind, text, &compiler{params: j.paramNames(), secrets: j.secretParams(), flow: true, item: true, named: named})
		}
		return text
	}
	if w := j.Run.work(); w != nil {
		w.expand(visit, root)
	}
	if f := j.Run.Flow; f != nil {
		if f.Defaults != nil {
			visitor(visit).all(TemplatePrivate, f.Defaults.Env, root)
		}
		for _, s := range f.All() {
			if w := s.Run.work(); w != nil {
				w.expand(visit, root)
			}
		}
	}
	return named
}
