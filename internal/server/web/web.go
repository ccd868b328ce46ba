// Package web answers with the pages of the web UI: it parses a request, asks package service
// as the holder of the session, and prints the answer. It decides nothing about jobs and runs,
// and reads no store. Every page works without script and is an address that can be sent to a
// colleague; scripts only enhance it and read the public API.
//
// The host of a request and the site that a change comes from are checked by package httpapi,
// which passes on what is not for the API.
package web

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/i18n"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/server/signin"
)

// Config is what pages need.
type Config struct {
	// Service answers the requests of pages.
	Service Service
	// Tokens recognises the tokens of those who log in.
	Tokens *auth.Tokens
	// Sessions of browsers.
	Sessions *auth.Sessions
	// SignIn is the provider that people sign in at. Nil: there is none.
	SignIn *signin.Provider
	// SignInAt is what the button of the sign-in page calls it.
	SignInAt string
	// Node is the name of this node.
	Node string
	// Version of the program.
	Version string
	// Now is the clock of this machine. Default: [time.Now].
	Now func() time.Time
	// Log takes internal failures. Default: nothing.
	Log *slog.Logger
}

// site is what the pages share.
type site struct {
	Config
	mux       http.ServeMux
	templates map[i18n.Lang]*template.Template
	assets    assets
	signIns   auth.Failures            // sign-ins that the provider refused
	known     sync.Map                 // what the frame of each page shows, by the roles of its reader, see frame
	hosts     atomic.Pointer[[]string] // their names, see host
	late      sync.Map                 // how late runs started, by the roles of the reader, see lateness
}

//go:embed templates
var templateFiles embed.FS

// Handler returns what answers requests for pages.
func Handler(c Config) (http.Handler, error) {
	if c.Service == (Service{}) || c.Tokens == nil || c.Sessions == nil {
		return nil, errors.New("make the web UI: a service, its tokens and sessions are needed")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &site{Config: c, templates: map[i18n.Lang]*template.Template{}}
	var err error
	if s.assets, err = readAssets(); err != nil {
		return nil, err
	}
	for _, lang := range i18n.Langs() {
		s.templates[lang], err = template.New("").Funcs(s.functions(lang)).ParseFS(templateFiles, "templates/*.html")
		if err != nil {
			return nil, fmt.Errorf("make the web UI: %w", err)
		}
	}
	s.routes()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("X-Content-Type-Options", "nosniff")
		s.mux.ServeHTTP(w, r)
	}), nil
}

// policy lets a page use nothing but its own files, and no text become script or style. The
// one policy for trusted types belongs to live.js, which puts our own pages in place.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types belfry"

// routes are all pages and what their forms do.
func (s *site) routes() {
	s.mux.Handle("GET /ui/assets/", s.assets)
	s.mux.HandleFunc("GET /ui/login", s.loginPage)
	s.mux.HandleFunc("POST /ui/login", s.login)
	s.mux.HandleFunc("GET /ui/sign-in", s.beginSignIn)
	s.mux.HandleFunc("GET /ui/sign-in/callback", s.finishSignIn)
	s.page("GET /ui/sign-in/command", s.commandPage)
	s.page("POST /ui/sign-in/command", s.approveCommand)
	s.page("POST /ui/logout", s.logout)
	s.page("POST /ui/look", s.look)
	s.page("GET /ui/kit", s.kit)

	s.page("GET /{$}", s.overview)
	s.page("GET /wall", s.wall)
	s.page("GET /jobs", s.jobs)
	s.slowPage("POST /jobs/bulk", s.bulk)
	s.slowPage("POST /jobs/bulk/undo", s.undoBulk)
	s.page("GET /jobs/{namespace}/{name}", s.jobRuns)
	s.page("GET /jobs/new", needs(service.Define, s.newJobPage))
	s.page("POST /jobs/new", needs(service.Define, s.saveJob))
	s.page("GET /shared", s.shared)
	s.page("GET /jobs/import", needs(service.Define, s.importPage))
	s.page("POST /jobs/import", needs(service.Define, s.importCrontab))
	s.page("GET /jobs/{namespace}/{name}/edit", needs(service.Define, s.editJob))
	s.page("POST /jobs/{namespace}/{name}/edit", needs(service.Define, s.saveJob))
	s.page("GET /jobs/{namespace}/{name}/definition", s.definition)
	s.page("GET /jobs/{namespace}/{name}/schedule", s.schedulePage)
	s.page("POST /jobs/{namespace}/{name}/backfill", s.backfill)
	s.page("GET /jobs/{namespace}/{name}/backfill", s.backfillPage)
	s.page("POST /jobs/{namespace}/{name}/backfill/cancel", s.cancelBackfill)
	s.page("GET /jobs/{namespace}/{name}/statistics", s.statistics)
	s.page("GET /jobs/{namespace}/{name}/graph", s.graphPage)
	s.page("GET /flows", s.flows)
	s.page("GET /timeline", s.timeline)
	s.page("GET /runs", s.runs)
	s.page("GET /runs/{id}", s.run)
	s.page("GET /nodes", s.nodes)
	s.page("GET /executors", s.executors)
	s.page("GET /notifications", s.notifications)
	s.page("GET /channels/new", needs(service.Define, s.newChannelPage))
	s.page("POST /channels/new", needs(service.Define, s.saveChannel))
	s.page("GET /channels/{namespace}/{name}", s.channelPage)
	s.page("POST /channels/{namespace}/{name}", needs(service.Define, s.saveChannel))
	s.page("GET /audit", s.audit)
	s.page("GET /settings", s.settings)
	s.actions()
	s.page("GET /", func(*page) error {
		return &service.Error{Type: client.TypeNotFound, Detail: reason.Say(phrase.NoAddress)}
	})
}

// needs refuses a page to those without a right in its namespace, or in any. What they send is
// not looked at before.
func needs(r service.Right, answer func(*page) error) func(*page) error {
	return func(p *page) error {
		err := p.who.May(r)
		if namespace := p.r.PathValue("namespace"); namespace != "" {
			err = p.who.MayIn(r, namespace)
		}
		if err != nil {
			return err
		}
		return answer(p)
	}
}

// pageTime is how long a page may take. The store needs milliseconds unless it hangs.
const pageTime = 20 * time.Second

// slowPageTime is how long the change of many jobs may take.
const slowPageTime = 100 * time.Second

// formMax bounds what a form sends: a definition of a job is the largest.
const formMax = 4 << 20

// page adds a route for those who are logged in.
func (s *site) page(pattern string, answer func(*page) error) {
	s.timedPage(pattern, pageTime, answer)
}

// slowPage adds a route that may take longer than pages do.
func (s *site) slowPage(pattern string, answer func(*page) error) {
	s.timedPage(pattern, slowPageTime, answer)
}

func (s *site) timedPage(pattern string, most time.Duration, answer func(*page) error) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), most)
		defer cancel()
		p := s.open(w, r.WithContext(ctx))
		secret := auth.SessionOf(r)
		who, err := s.holder(ctx, secret)
		if err != nil {
			s.refuse(p, err)
			return
		}
		auth.Shown(ctx)
		p.who, p.secret = who, secret
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			r.Body = http.MaxBytesReader(w, r.Body, formMax)
			if err := p.r.ParseForm(); err != nil {
				refused := &service.Error{Type: client.TypeMalformed, Detail: reason.Say(phrase.FormUnread)}
				var large *http.MaxBytesError
				if errors.As(err, &large) {
					refused = &service.Error{Type: client.TypeTooLarge, Detail: reason.Say(phrase.FormTooLong.Of(int(large.Limit)))}
				}
				s.fail(p, refused)
				return
			}
			if !auth.IsFormToken(secret, p.r.PostForm.Get("form")) {
				s.fail(p, &service.Error{Type: client.TypeCrossOrigin, Detail: reason.Say(phrase.FormForeign), Hint: reason.Say(phrase.OpenAgain)})
				return
			}
		}
		if err := answer(p); err != nil {
			s.fail(p, err)
		}
	})
}

// errNoSession is why a page is not shown to a stranger.
var errNoSession = errors.New("no session")

// holder returns whose session it is.
func (s *site) holder(ctx context.Context, secret string) (service.Caller, error) {
	if secret == "" {
		return service.Caller{}, errNoSession
	}
	holder, err := s.Sessions.Holder(ctx, secret)
	if errors.Is(err, auth.ErrUnknown) || errors.Is(err, auth.ErrExpired) {
		return service.Caller{}, errNoSession
	}
	return service.CallerFor(holder), err
}

// refuse sends a stranger to the login page. A browser that follows a link of another site
// does not send the cookie at once, since it is a strict one: the login page is asked for from
// a page of this server, and finds the session.
func (s *site) refuse(p *page, err error) {
	switch {
	case !errors.Is(err, errNoSession):
		s.fail(p, err)
	case p.r.Header.Get("X-Belfry") != "" || p.r.Method != http.MethodGet:
		http.Error(p.w, p.T("login.ended"), http.StatusUnauthorized)
	default:
		address := "/ui/login?next=" + url.QueryEscape(p.r.URL.RequestURI())
		if p.r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			s.write(p, http.StatusOK, "enter", address)
			return
		}
		http.Redirect(p.w, p.r, address, http.StatusSeeOther)
	}
}

// ours returns a path of this server, or "/" for what leads elsewhere.
func ours(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(address, "/") || strings.HasPrefix(address, "//") || strings.Contains(address, "\\") {
		return "/"
	}
	return address
}

// statuses of the problems that pages answer with.
var statuses = map[client.ProblemType]int{
	client.TypeMalformed: http.StatusBadRequest, client.TypeUnauthenticated: http.StatusUnauthorized, client.TypeForbidden: http.StatusForbidden,
	client.TypeCrossOrigin: http.StatusForbidden, client.TypeNotFound: http.StatusNotFound, client.TypeExists: http.StatusConflict,
	client.TypeConflict: http.StatusConflict, client.TypeChanged: http.StatusPreconditionFailed, client.TypeInvalid: http.StatusUnprocessableEntity,
	client.TypeTooMany: http.StatusTooManyRequests, client.TypeUnavailable: http.StatusServiceUnavailable, client.TypeTimeout: http.StatusGatewayTimeout,
}

// errorView is the page of a problem.
type errorView struct {
	*Layout
	Status       int
	Detail, Hint string
	Errors       []client.FieldError
}

// fail answers with the page of a problem, and logs what is no mistake of the caller.
func (s *site) fail(p *page, err error) {
	e := service.ErrorOf(err)
	status, ok := statuses[e.Type]
	if !ok {
		status = http.StatusInternalServerError
	}
	switch {
	case e.Type == client.TypeInternal:
		s.Log.Error("a page failed", "error", errors.Unwrap(e), "path", p.r.URL.Path, "actor", p.who.Name)
	case e.Away():
		s.Log.Warn("the store could not be reached for a page", "error", errors.Unwrap(e), "actor", p.who.Name)
	}
	layout := p.bareLayout("error.title", "")
	if known, ok := s.known.Load(p.who.Says()); ok { // the store may be what fails, and is not asked
		layout.shows(known.(frame))
	}
	v := errorView{Layout: layout, Status: status, Detail: p.reason(e.Detail), Hint: p.reason(e.Hint)}
	for _, f := range e.Errors {
		f.Detail, f.Hint = p.mistake(f)
		v.Errors = append(v.Errors, f)
	}
	s.write(p, status, "error", v)
}

// write answers with a template.
func (s *site) write(p *page, status int, name string, view any) {
	var b bytes.Buffer
	if err := s.templates[p.lang].ExecuteTemplate(&b, name, view); err != nil {
		s.Log.Error("a page could not be written", "page", name, "error", err)
		http.Error(p.w, "the page could not be written; the reason is in the log of the server", http.StatusInternalServerError)
		return
	}
	header := p.w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Language", string(p.lang))
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Cookie")
	p.w.WriteHeader(status)
	_, _ = p.w.Write(b.Bytes())
}

// addressOf returns the network address that a request comes from.
func addressOf(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr()
}
