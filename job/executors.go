package job

import (
	"cmp"
	"net/url"
	"strings"
	"unicode"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Executors are manually listed executors of XXL-JOB: they belong to their group whether they
// register or not.
type Executors struct {
	Namespace string            `json:"namespace,omitzero" max:"128" doc:"The namespace of the document. Groups belong to none. Default: default."`
	Name      string            `json:"name" max:"128" doc:"The name of the document in its namespace."`
	Group     string            `json:"group,omitzero" max:"255" doc:"The group of the executors: the appname that run.xxl.group names. Default: the name."`
	Title     string            `json:"title,omitzero" max:"255" doc:"What the group is called by people."`
	Labels    map[string]string `json:"labels,omitzero" items:"64" doc:"Free marks to find documents by."`
	Addresses []string          `json:"addresses,omitzero" items:"1000" max:"255" doc:"The addresses of executors, such as http://10.0.0.5:9999. They get runs without registering. Default: none, only those that register."`
	Token     string            `json:"token,omitzero" max:"64" doc:"The name of a secret in the namespace: the access token of the group alone, which its executors show and are shown. Default: those of xxl.tokens."`
	UID       ID                `json:"uid,omitzero" doc:"Read-only. The identity of the document."`
	Version   int64             `json:"version,omitzero" min:"1" doc:"Read-only. Every change of the document increments it."`
	Source    *Source           `json:"source,omitzero" doc:"Read-only. The commit of a repository that the document is of."`
}

// FullName returns "namespace/name".
func (e *Executors) FullName() string { return fullName(e.Namespace, e.Name) }

// Appname returns the group of the executors.
func (e *Executors) Appname() string { return cmp.Or(e.Group, e.Name) }

func (v *validator) executors(e *Executors) {
	v.labels(e.Labels, root.field("labels"))
	v.refuse(strings.ContainsFunc(e.Group, isBlankOrControl), root.field("group"), phrase.HasBlank.Of(quote(e.Group)), phrase.GroupForm)
	v.refuse(strings.ContainsFunc(e.Title, unicode.IsControl), root.field("title"), phrase.HasControl)
	v.refuse(len(e.Addresses) == 0 && e.Token == "", root.field("addresses"), phrase.Missing, phrase.AddressesOrToken.Of("[http://10.0.0.5:9999]"))
	v.refuse(e.Token != "" && !IsSecretName(e.Token), root.field("token"), phrase.NotSecretName.Of(quote(e.Token)),
		phrase.SecretSet)
	seen := map[string]bool{}
	for i, address := range e.Addresses {
		at, same := root.field("addresses").item(i), strings.TrimRight(address, "/")
		if wrong := executorAddress(address); !wrong.IsZero() {
			v.report(at, phrase.QuotedBefore.Of(quote(address), wrong), phrase.Example.Of("http://10.0.0.5:9999"))
		}
		v.refuse(seen[same], at, phrase.TwiceThere.Of(quote(address)))
		seen[same] = true
	}
}

// executorAddress explains why a text is not the address of an executor; none if it is one.
func executorAddress(address string) phrase.Text {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || strings.ContainsFunc(address, isBlankOrControl):
		return phrase.NotWebAddress
	case u.User != nil:
		return phrase.UserInIt
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(address, "#"):
		return phrase.QueryInIt
	}
	return phrase.Text{}
}
