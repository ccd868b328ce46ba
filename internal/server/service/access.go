package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Caller is the author of a request. The zero value has no rights.
type Caller struct {
	// Name is the actor in the audit.
	Name string
	Role store.Role
	// Namespace restricts the caller to a namespace. "" means all namespaces.
	Namespace string
	// Roles are a person's roles by namespace, "" for all namespaces, instead of Role and
	// Namespace.
	Roles map[string]store.Role
	// Token is the hash of the caller's token or of a person's session: its end ends the
	// caller's streams. Zero is for a part of this process, which has no token.
	Token store.TokenHash
	// Terms are the terms of the token.
	Terms store.Terms
	// Certificate is the name of the client certificate of a worker that its token is for.
	Certificate string
}

// CallerOf returns the holder of a token.
func CallerOf(t store.Token) Caller {
	return Caller{Name: t.Name, Role: t.Role, Namespace: t.Namespace, Token: t.Hash, Terms: t.Terms}
}

// CallerFor returns the holder of a session.
func CallerFor(h auth.Holder) Caller {
	if h.Person == nil {
		return CallerOf(h.Token)
	}
	return Caller{Name: h.Name, Roles: h.Roles, Token: h.Hash}
}

// Right is the right that a method requires. Interfaces may check it earlier, by
// [Caller.May], to refuse a request before they read it.
type Right struct {
	Role store.Role
	// Server is set where the whole server is affected: a caller with a namespace has no
	// such right.
	Server bool
}

// The rights that methods require.
var (
	Read       = Right{Role: store.RoleViewer}
	Operate    = Right{Role: store.RoleRunner} // run, cancel and retry defined jobs
	Define     = Right{Role: store.RoleAdmin}
	Observe    = Right{Role: store.RoleViewer, Server: true}
	Administer = Right{Role: store.RoleAdmin, Server: true}
	// WorkAsWorker is the right of workers, and [JoinAsWorker] the right of joining tokens.
	WorkAsWorker = Right{Role: store.RoleRemote}
	JoinAsWorker = Right{Role: store.RoleJoin}
)

// roleIn returns the role of the caller in a namespace; "" is the role in all namespaces.
func (c Caller) roleIn(namespace string) store.Role {
	switch {
	case c.Roles == nil && (c.Namespace == "" || c.Namespace == namespace):
		return c.Role
	case c.Roles == nil:
		return ""
	}
	own, all := c.Roles[namespace], c.Roles[""]
	if all.Allows(own) {
		return all
	}
	return cmp.Or(own, all)
}

// IsWorker reports whether the caller is a worker, or a machine with a joining token.
func (c Caller) IsWorker() bool { return c.Role == store.RoleRemote || c.Role == store.RoleJoin }

// Everywhere reports whether the caller has a right in all namespaces.
func (c Caller) Everywhere(r Right) bool { return c.roleIn("").Allows(r.Role) }

// only returns the one namespace in which the caller has a role, "" if there are several.
func (c Caller) only() string {
	if c.Roles == nil {
		return c.Namespace
	}
	if len(c.Roles) == 1 {
		for namespace := range c.Roles {
			return namespace
		}
	}
	return ""
}

// Says formats the roles of the caller: a person's with their namespaces. Callers with the
// same text have the same rights.
func (c Caller) Says() string {
	if c.Roles == nil {
		return strings.TrimSuffix(string(c.Role)+" in "+c.Namespace, " in ")
	}
	return auth.RolesInWords(c.Roles)
}

// who names the caller in messages.
func (c Caller) who() string {
	if c.Roles == nil {
		return "the token " + c.Name
	}
	return c.Name
}

// May refuses a caller without a right; the right in a single namespace is enough.
func (c Caller) May(r Right) error {
	allowed := c.Role.Allows(r.Role)
	for _, role := range c.Roles {
		allowed = allowed || role.Allows(r.Role)
	}
	if c.Roles != nil && !allowed {
		return Refuse(client.TypeForbidden, phrase.PersonNeeds.Of(c.Name, c.Says(), string(r.Role)), phrase.GroupsToRoles)
	}
	if !allowed {
		return Refuse(client.TypeForbidden, phrase.TokenNeeds.Of(c.Name, string(c.Role), string(r.Role)), phrase.CreateWithRole)
	}
	if !r.Server || c.Everywhere(r) {
		return nil
	}
	if c.Roles != nil {
		return Refuse(client.TypeForbidden, phrase.PersonOfAll.Of(c.Name, c.Says()))
	}
	return Refuse(client.TypeForbidden, phrase.TokenOfAll.Of(c.Name, c.Namespace))
}

// MayIn refuses a caller without a right in a namespace, whether the namespace is empty
// or not.
func (c Caller) MayIn(r Right, namespace string) error {
	if err := c.May(r); err != nil {
		return err
	}
	switch role := c.roleIn(namespace); {
	case role.Allows(r.Role):
		return nil
	case role != "":
		return Refuse(client.TypeForbidden, phrase.NeedsInNamespace.Of(c.who(), string(role), namespace, string(r.Role)))
	}
	return c.outside()
}

// reads returns the namespaces of a list: the requested one, or all of the caller's.
func (c Caller) reads(namespace string) (scope, error) { return c.within(Read, namespace) }

// within returns the namespaces in which the caller has a right: the requested one, or all
// of them.
func (c Caller) within(r Right, namespace string) (scope, error) {
	if namespace != "" {
		return scope{namespace}, c.MayIn(r, namespace)
	}
	if err := c.May(r); err != nil || c.Everywhere(r) {
		return nil, err
	}
	if c.Roles == nil {
		return scope{c.Namespace}, nil
	}
	var list scope
	for namespace, role := range c.Roles {
		if role.Allows(r.Role) {
			list = append(list, namespace)
		}
	}
	slices.SortFunc(list, byFullName)
	return list, nil
}

// outside refuses namespaces other than the caller's.
func (c Caller) outside() *Error {
	if c.Roles != nil {
		return Refuse(client.TypeForbidden, phrase.PersonOutside.Of(c.Name, c.Says()))
	}
	return Refuse(client.TypeForbidden, phrase.TokenOutside.Of(c.Name, c.Namespace))
}

// sees reports whether the caller may read the namespace of a full name.
func (c Caller) sees(full string) bool { return c.has(Read, full) }

// has reports whether the caller has a right in the namespace of a full name.
func (c Caller) has(r Right, full string) bool {
	namespace, _, found := strings.Cut(full, "/")
	return c.Everywhere(r) || found && c.roleIn(namespace).Allows(r.Role)
}

// mayName refuses a document outside the caller's namespaces, and one with references
// outside them: a job that follows a foreign job, or uses a foreign calendar or pool,
// observes and delays it.
func (c Caller) mayName(r Right, d job.Document, pointer string) error {
	if c.Everywhere(r) {
		return nil
	}
	if !c.has(r, d.FullName()) {
		return c.outside().withErrors(mistakeAt(pointer, "namespace", phrase.IsAnotherOne))
	}
	if d.Executors != nil {
		// Groups of executors belong to no namespace: an address in one gets its parameters and
		// reports its results.
		return Refuse(client.TypeForbidden, phrase.ExecutorsOfAll.Of(c.Name, c.Namespace)).
			withErrors(mistakeAt(pointer, "kind", phrase.NeedsServerToken))
	}
	if d.Channel != nil {
		if path, what := d.Channel.Foreign(); path != "" {
			return c.outside().withErrors(mistakeAt(pointer, path, phrase.NamesOutside.Of(what)))
		}
	}
	refused := c.outside()
	refer := func(path string, names ...string) {
		for _, full := range names {
			if !c.has(r, full) {
				refused.withErrors(mistakeAt(pointer, path, phrase.NamesOutside.Of(full)))
			}
		}
	}
	var j job.Job
	switch {
	case d.Job != nil:
		j = *d.Job
	case d.Window != nil:
		j = *d.Window.AsJob()
		for i, namespace := range d.Window.In() {
			refer(fmt.Sprintf("match.namespaces[%d]", i), namespace+"/"+job.AllNamespaces)
		}
	default:
		return nil
	}
	j.Namespace = cmp.Or(j.Namespace, job.DefaultNamespace)
	refer("schedule.on", engine.Follows(&j)...)
	refer("schedule", engine.Calendars(&j)...)
	for _, key := range [...]struct{ field, pool string }{{"policy.concurrency_key", j.Policy.ConcurrencyKey}, {"policy.rate_key", j.Policy.RateKey}} {
		if strings.Contains(key.pool, "/") {
			refer(key.field, key.pool)
		}
	}
	if len(refused.Errors) == 0 {
		return nil
	}
	return refused
}
