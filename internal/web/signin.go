package web

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/auth"
	"github.com/belfry-cron/belfry/internal/signin"
)

// beginSignIn sends a browser to the provider.
func (s *site) beginSignIn(w http.ResponseWriter, r *http.Request) {
	p := s.open(w, r)
	w.Header().Set("Cache-Control", "no-store")
	next := ours(p.query("next"))
	if s.SignIn == nil {
		s.showLogin(p, http.StatusNotFound, next, p.T("signin.none"))
		return
	}
	address, cookie, err := s.SignIn.Begin(r.Context(), next)
	if err != nil {
		s.refuseSignIn(p, next, err)
		return
	}
	auth.SetSignIn(w, r, cookie, signin.Within)
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// finishSignIn takes a browser that comes back from the provider. It always gets a new session: one
// that it had before ends.
func (s *site) finishSignIn(w http.ResponseWriter, r *http.Request) {
	p := s.open(w, r)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer") // the address has the code
	if s.SignIn == nil {
		s.showLogin(p, http.StatusNotFound, "/", p.T("signin.none"))
		return
	}
	person, next, err := s.SignIn.Finish(r.Context(), auth.SignInOf(r), r.URL.Query())
	auth.SetSignIn(w, r, "", 0) // it is good for one try
	if next = ours(next); err != nil {
		s.refuseSignIn(p, next, err)
		return
	}
	secret, err := s.Sessions.BeginPerson(r.Context(), person)
	if err != nil {
		s.Log.Error("a session could not be kept", "error", err)
		s.fail(p, err)
		return
	}
	if old := auth.SessionOf(r); old != "" {
		if err := s.Sessions.End(r.Context(), old); err != nil {
			s.Log.Warn("the end of a session could not be written", "error", err)
		}
	}
	auth.SetSession(w, r, secret)
	s.Log.Info("a person has signed in", "person", person.Actor(), "subject", person.Subject)
	// The cookie is a strict one: it is not sent along on a redirect that began at the provider.
	s.write(p, http.StatusOK, "enter", next)
}

// refuseSignIn says why a sign-in has failed, on the page to try again.
func (s *site) refuseSignIn(p *page, next string, err error) {
	var away *signin.AwayError
	var denied *signin.DeniedError
	var invalid *signin.InvalidError
	var none *signin.NoRoleError
	status, text := http.StatusInternalServerError, p.T("signin.failed")
	switch {
	case errors.Is(err, signin.ErrState):
		status, text = http.StatusBadRequest, p.T("signin.state")
	case errors.Is(err, signin.ErrBusy):
		status, text = http.StatusServiceUnavailable, p.T("signin.busy")
	case errors.As(err, &away):
		status, text = http.StatusBadGateway, p.T("signin.away", "at", s.SignInAt)
	case errors.As(err, &denied):
		status, text = http.StatusForbidden, p.T("signin.denied", "at", s.SignInAt, "why", clean(strings.TrimSuffix(denied.Code+": "+denied.Text, ": ")))
	case errors.As(err, &invalid):
		status, text = http.StatusBadGateway, p.T("signin.invalid", "at", s.SignInAt)
	case errors.As(err, &none) && none.Domain:
		status, text = http.StatusForbidden, p.T("signin.domain", "who", clean(none.Person.Name))
	case errors.As(err, &none):
		status, text = http.StatusForbidden, p.T("signin.no_role", "who", clean(none.Person.Name), "groups", clean(shortList(none.Groups)))
	}
	s.Log.Warn("a sign-in was refused", "error", err, "address", addressOf(p.r))
	wait, _ := s.failures.Add(addressOf(p.r), p.now)
	if wait > 0 {
		p.w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
		status, text = http.StatusTooManyRequests, p.T("login.too_many")
	}
	s.showLogin(p, status, next, text)
}

// groupsShown is how many groups of a person a page names.
const groupsShown = 20

func shortList(groups []string) string {
	if len(groups) == 0 {
		return "-"
	}
	text := strings.Join(groups[:min(len(groups), groupsShown)], ", ")
	if len(groups) > groupsShown {
		text += ", …"
	}
	return text
}
