package service

import (
	"cmp"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Caller is who asks for something. The zero value may do nothing.
type Caller struct {
	// Name is the actor in the audit.
	Name string
	Role store.Role
	// Namespace restricts the caller to what is in it. "" is for all namespaces.
	Namespace string
	// Token is the hash of the caller's token: what the caller follows ends with the token.
	// Zero is for a part of this process, which has no token.
	Token store.TokenHash
}

// CallerOf returns the holder of a token.
func CallerOf(t store.Token) Caller {
	return Caller{Name: t.Name, Role: t.Role, Namespace: t.Namespace, Token: t.Hash}
}

// Right is what a method asks of its caller. Faces may ask earlier, by Caller.May, to refuse
// a request before they read it.
type Right struct {
	Role store.Role
	// Server is set where the whole server is affected: a caller with a namespace has no
	// such right.
	Server bool
}

// The rights that methods ask for.
var (
	Read       = Right{Role: store.RoleViewer}
	Operate    = Right{Role: store.RoleRunner} // run, cancel and retry what is defined
	Define     = Right{Role: store.RoleAdmin}
	Observe    = Right{Role: store.RoleViewer, Server: true}
	Administer = Right{Role: store.RoleAdmin, Server: true}
)

// May refuses a caller that does not have a right.
func (c Caller) May(r Right) error {
	if !c.Role.Allows(r.Role) {
		return refuse(client.TypeForbidden, "the token %s has the role %s, and this needs %s", c.Name, c.Role, r.Role).
			withHint("an administrator can create one with that role: belfry token create")
	}
	if r.Server && c.Namespace != "" {
		return refuse(client.TypeForbidden, "the token %s is for the namespace %s, and this is about all of the server", c.Name, c.Namespace)
	}
	return nil
}

// MayIn refuses a caller that does not have a right in a namespace, whether there is
// anything in it or not.
func (c Caller) MayIn(r Right, namespace string) error {
	if err := c.May(r); err != nil {
		return err
	}
	if c.Namespace != "" && namespace != c.Namespace {
		return c.outside()
	}
	return nil
}

// reads returns the namespace of a list: the one that was asked for, or the caller's.
func (c Caller) reads(namespace string) (string, error) {
	if c.Namespace == "" || namespace == "" {
		return cmp.Or(namespace, c.Namespace), c.May(Read)
	}
	return namespace, c.MayIn(Read, namespace)
}

// outside refuses what is in another namespace than the caller's.
func (c Caller) outside() *Error {
	return refuse(client.TypeForbidden, "the token %s is for the namespace %s alone", c.Name, c.Namespace)
}

// sees reports whether something with this full name is in a namespace of the caller.
func (c Caller) sees(full string) bool {
	return c.Namespace == "" || strings.HasPrefix(full, c.Namespace+"/")
}

// mayName refuses a document of another namespace than the caller's, and one that names what
// is in another: a job that follows a foreign job, or uses a foreign calendar or pool, learns
// of it and holds it up.
func (c Caller) mayName(d job.Document, pointer string) error {
	if c.Namespace == "" {
		return nil
	}
	if !c.sees(d.FullName()) {
		return c.outside().withErrors(client.FieldError{Pointer: pointer + "/namespace", Path: "namespace", Detail: "is another one"})
	}
	if d.Executors != nil {
		// Groups of executors belong to no namespace: an address in one gets its parameters and
		// reports its results.
		return refuse(client.TypeForbidden, "the token %s is for the namespace %s alone, and executors are for the jobs of all", c.Name, c.Namespace).
			withErrors(client.FieldError{Pointer: pointer + "/kind", Path: "kind", Detail: "needs a token without a namespace"})
	}
	if d.Channel != nil {
		if path, what := d.Channel.Foreign(); path != "" {
			return c.outside().withErrors(client.FieldError{Pointer: pointer + Pointer(path), Path: path, Detail: "names " + what})
		}
	}
	if d.Job == nil {
		return nil
	}
	j := *d.Job
	j.Namespace = cmp.Or(j.Namespace, job.DefaultNamespace)
	refused := c.outside()
	refer := func(path string, names ...string) {
		for _, full := range names {
			if !c.sees(full) {
				refused.withErrors(client.FieldError{Pointer: pointer + Pointer(path), Path: path, Detail: "names " + full})
			}
		}
	}
	refer("schedule.on", engine.Follows(&j)...)
	refer("schedule", engine.Calendars(&j)...)
	if pool := j.Policy.ConcurrencyKey; strings.Contains(pool, "/") {
		refer("policy.concurrency_key", pool)
	}
	if len(refused.Errors) == 0 {
		return nil
	}
	return refused
}
