package job

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Key is a policy.concurrency_key that has a value for each run, by its parameters. It does not
// change and may be shared between goroutines.
type Key struct {
	namespace string
	literal   string // the text before the first action
	template  *Template
	defaults  map[string]string
}

// keyMax is the longest value of a key: that of a name.
const keyMax = 128

// IsTemplate reports whether a text has actions in {{ }}.
func IsTemplate(text string) bool { return strings.Contains(text, "{{") }

// CompileKey compiles a template of a concurrency key.
func (j *Job) CompileKey(text string) (*Key, error) {
	t, err := compileTemplate(TemplateText, text, &compiler{params: j.paramNames(), secrets: j.secretParams(), onlyParams: true})
	if err != nil {
		return nil, err
	}
	k := &Key{namespace: namespaceOf(j.Namespace), template: t, defaults: make(map[string]string, len(j.Params))}
	if k.literal, _, _ = strings.Cut(text, "{{"); !isName(k.literal) {
		return nil, phrase.Mistake(phrase.KeyWithoutName, phrase.Example.Of("customer-{{ .Param.customer }}"))
	}
	for name, param := range j.Params {
		k.defaults[name] = param.Default
	}
	return k, nil
}

// Of returns the full name of the pool of a run with some parameters. A text that cannot be part of
// a name, since it is too long or has other characters, is replaced by its hash, so that equal values
// stay equal.
func (k *Key) Of(params map[string]string) string {
	all := k.defaults
	if len(params) > 0 {
		all = make(map[string]string, len(k.defaults))
		for name, value := range k.defaults {
			if given, ok := params[name]; ok {
				value = given
			}
			all[name] = value
		}
	}
	text, err := k.template.Execute(TemplateData{Params: all})
	if err != nil { // its output is too long
		text = err.Error()
	}
	if !isKey(text) || !strings.HasPrefix(text, k.literal) {
		sum := sha256.Sum256([]byte(text))
		text = k.literal + hex.EncodeToString(sum[:8])
	}
	return k.namespace + "/" + text
}

// isKey reports whether a text is a name that may have capital letters.
func isKey(text string) bool {
	const all = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	return hasForm(text, keyMax, all, all)
}
