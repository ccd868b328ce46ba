// Package dashboard gives the web UI and the HTTP API of a program's scheduler as a handler for the
// program's own server, behind its own authentication:
//
//	s := belfry.New(postgres.URL(url))
//	pages, err := dashboard.Handler(ctx, s, dashboard.Config{
//		Path: "/ops/belfry",
//		Who: func(r *http.Request) (dashboard.Person, bool) {
//			user, ok := mySession(r)
//			return dashboard.Person{Name: user.Email, Role: dashboard.Runner}, ok
//		},
//	})
//	mux.Handle("/ops/belfry/", pages)
//
// The scheduler need not run in this process: a program that only has the store can show it.
package dashboard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/inside"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/server/web"
	"github.com/belfry-cron/belfry/store"
)

// Role says what a person may do.
type Role string

// The roles, each with the rights of the ones before.
const (
	Viewer Role = "viewer" // reads everything but secrets
	Runner Role = "runner" // runs, cancels and retries
	Admin  Role = "admin"  // changes jobs, tokens and settings
)

// Person is the sender of a request.
type Person struct {
	// Name identifies the person in the audit, such as a mail address.
	Name string
	// Role applies to all namespaces.
	Role Role
	// Roles are further roles by namespace.
	Roles map[string]Role
}

// Config configures [Handler].
type Config struct {
	// Path is where the handler is mounted, such as /ops/belfry; "" for the root of a host.
	Path string
	// Who returns the sender of a request, as the program knows it. Without one the answer is 403; a
	// program that wants to ask for a login does so before it calls the handler.
	Who func(*http.Request) (Person, bool)
	// SignOut is the address to which the button for logging out leads. Default: the overview.
	SignOut string
}

// Handler returns what answers requests below c.Path, until ctx ends. The scheduler's store is opened
// with the first request. The error is about the configuration.
func Handler(ctx context.Context, s *belfry.Scheduler, c Config) (http.Handler, error) {
	if c.Who == nil {
		return nil, errors.New("dashboard.Handler: Config.Who is missing: without it anybody could run jobs")
	}
	if c.Path != "" && (!strings.HasPrefix(c.Path, "/") || strings.HasSuffix(c.Path, "/") || strings.Contains(c.Path, "//")) {
		return nil, fmt.Errorf("dashboard.Handler: Config.Path is %q and must be like /ops/belfry", c.Path)
	}
	return http.StripPrefix(c.Path, &board{Config: c, ctx: ctx, scheduler: s, known: map[string]*visit{}}), nil
}

// peopleMax bounds the people whose sessions are kept in memory; the others begin one anew.
const peopleMax = 1000

// board is a mounted web UI.
type board struct {
	Config
	ctx       context.Context //nolint:containedctx // of what follows the store
	scheduler *belfry.Scheduler

	mu      sync.Mutex // guards the following fields
	of      inside.Parts
	inner   http.Handler
	session *auth.Sessions
	stop    context.CancelFunc
	known   map[string]*visit // by the names of people
}

// visit is the session of a person, which never leaves this process.
type visit struct {
	secret string
	begun  time.Time
	roles  map[string]store.Role
}

// Roles implements auth.People.
func (b *board) Roles(p *store.Person) map[string]store.Role {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v := b.known[p.Subject]; v != nil && p.Provider == provider {
		return maps.Clone(v.roles)
	}
	return nil
}

// Lasts implements auth.People.
func (b *board) Lasts() time.Duration { return auth.SessionMax }

// provider is the provider of people in the audit.
const provider = "app"

// roles returns the roles of a person in the store's terms.
func (p Person) roles() (map[string]store.Role, error) {
	list := map[string]Role{}
	maps.Copy(list, p.Roles)
	if p.Role != "" {
		list[""] = p.Role
	}
	roles := map[string]store.Role{}
	for namespace, role := range list {
		switch role {
		case Viewer, Runner, Admin:
			roles[namespace] = store.Role(role)
		default:
			return nil, fmt.Errorf("the role of %s is %q, which is none of viewer, runner and admin", p.Name, role)
		}
	}
	switch {
	case p.Name == "":
		return nil, errors.New("the person has no name for the audit")
	case len(roles) == 0:
		return nil, fmt.Errorf("%s has no role", p.Name)
	}
	return roles, nil
}

// ServeHTTP implements [http.Handler].
func (b *board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	person, ok := b.Who(r)
	if !ok {
		http.Error(w, "You may not see this: the program has its own sign-in.", http.StatusForbidden)
		return
	}
	roles, err := person.roles()
	if err != nil {
		b.fail(w, http.StatusInternalServerError, "tell who sends a request", err)
		return
	}
	switch {
	case r.URL.Path == "": // the mount point without its slash
		http.Redirect(w, r, b.Path+"/", http.StatusSeeOther)
		return
	case r.URL.Path == "/ui/logout" || r.URL.Path == "/ui/login":
		to := b.SignOut
		if to == "" || r.URL.Path == "/ui/login" {
			to = b.Path + "/"
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	inner, secret, err := b.answers(r.Context(), person.Name, roles)
	if err != nil {
		b.fail(w, http.StatusServiceUnavailable, "open the store", err)
		return
	}
	r = r.Clone(r.Context())
	// The credentials are the program's, and mean nothing here.
	r.Header.Del("Authorization")
	r.Header.Del("Cookie")
	r.Header.Del("Accept-Encoding") // what is written is looked at
	auth.AddSession(r, secret)
	if r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" {
		r.Header.Set("Sec-Fetch-Site", "same-origin") // a program, or a browser that reads
	}
	out := &moved{ResponseWriter: w, path: b.Path}
	inner.ServeHTTP(out, r)
	out.end()
	if out.toLogin {
		b.forget(person.Name, secret)
	}
}

func (b *board) fail(w http.ResponseWriter, status int, what string, err error) {
	b.mu.Lock()
	log := b.of.Log
	b.mu.Unlock()
	if log != nil {
		log.Error("the dashboard cannot "+what, "error", err)
	}
	http.Error(w, "The dashboard cannot "+what+"; the log of the program says why.", status)
}

// answers returns the handler of the store, and the session of a person.
func (b *board) answers(ctx context.Context, name string, roles map[string]store.Role) (http.Handler, string, error) {
	parts, err := b.scheduler.Inside(ctx)
	if err == nil && parts.Store == nil {
		err = belfry.ErrNoStore
	}
	if err != nil {
		return nil, "", err
	}
	b.mu.Lock()
	if parts.Store != b.of.Store || parts.Planner != b.of.Planner {
		if err := b.assemble(parts); err != nil { //nolint:contextcheck // what it starts outlives the request
			b.mu.Unlock()
			return nil, "", err
		}
	}
	inner, sessions, v := b.inner, b.session, b.known[name]
	if v == nil {
		for other := range b.known {
			if len(b.known) < peopleMax {
				break
			}
			delete(b.known, other)
		}
		v = &visit{}
		b.known[name] = v
	}
	v.roles = roles
	secret, isFresh := v.secret, v.secret != "" && time.Since(v.begun) < auth.SessionIdle/2
	b.mu.Unlock()
	if isFresh {
		return inner, secret, nil
	}
	secret, err = sessions.BeginPerson(ctx, &store.Person{Provider: provider, Subject: name, Name: name})
	if err != nil {
		return nil, "", err
	}
	b.mu.Lock()
	v.secret, v.begun = secret, time.Now()
	b.mu.Unlock()
	return inner, secret, nil
}

// forget drops a session that the store no longer has.
func (b *board) forget(name, secret string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v := b.known[name]; v != nil && v.secret == secret {
		v.secret = ""
	}
}

// assemble makes the handler for the parts of the scheduler, which change when it begins to run.
func (b *board) assemble(of inside.Parts) error {
	if b.stop != nil {
		b.stop()
	}
	tokens := auth.New(of.Store, of.Now)
	sessions := auth.NewSessions(tokens, b)
	hub, followers := events.New(of.Store), service.NewFollowers(of.Store)
	answers, err := service.New(service.Config{
		Store: of.Store, Planner: of.Planner, Events: hub, Followers: followers, Tokens: tokens, People: b, Node: of.Node, Now: of.Now, Log: of.Log,
	})
	if err != nil {
		return err
	}
	pages, err := web.Handler(web.Config{Service: web.ServiceOf(answers), Tokens: tokens, Sessions: sessions, Node: of.Node, Version: version(), Now: of.Now, Log: of.Log})
	if err != nil {
		return err
	}
	inner, err := httpapi.Handler(httpapi.Config{
		Service: answers, Tokens: tokens, Sessions: sessions, Pages: pages, Node: of.Node, AnyHost: true, Version: version(), Now: of.Now, Log: of.Log,
	})
	if err != nil {
		return err
	}
	following, stop := context.WithCancel(b.ctx)
	go func() { _ = hub.Run(following) }()
	go func() { _ = followers.Run(following) }()
	b.of, b.inner, b.session, b.stop = of, inner, sessions, stop
	return nil
}

// version returns the version of this module in the program.
func version() string {
	const module = "github.com/belfry-cron/belfry"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return ""
}
