package web

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/server/signin"
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
	auth.SetSignIn(w, r, "", 0) // it is good for one try
	// Each try makes this node ask the provider.
	if wait := s.signIns.Wait(addressOf(r), p.now); wait > 0 {
		s.manySignIns(p, "/", wait)
		return
	}
	person, next, err := s.SignIn.Finish(r.Context(), auth.SignInOf(r), r.URL.Query(), auth.NetworkOf(addressOf(r)))
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

// commandView is the page on which a person lets a command line sign in.
type commandView struct {
	*Layout
	Challenge, State, Port string
	// Back is where the browser goes when the person has agreed; "": the person copies Code.
	Back, Code string
}

// The parameters of the page: the state is a random text of the command.
var (
	challengeForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	stateForm     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
)

// portMin is the first port that any user of a machine may listen on.
const portMin = 1024

// commandOf reads the parameters of the page from its address or its form.
func commandOf(p *page, get func(string) string) (commandView, error) {
	v := commandView{Layout: p.bareLayout("allow.title", ""), Challenge: get("challenge"), State: get("state"), Port: get("port")}
	port, err := strconv.ParseUint(v.Port, 10, 16)
	switch {
	case !challengeForm.MatchString(v.Challenge):
		return v, wrongCommand("challenge")
	case !stateForm.MatchString(v.State):
		return v, wrongCommand("state")
	case v.Port != "" && (err != nil || port < portMin):
		return v, wrongCommand("port")
	}
	return v, nil
}

func wrongCommand(parameter string) error {
	return &service.Error{Type: client.TypeMalformed, Detail: reason.Say(phrase.NotOfLogin.Of(parameter)), Hint: reason.Say(phrase.OpenPrinted)}
}

// commandPage asks a person whether a command line may sign in. Who has logged in with a token
// goes to the provider first.
func (s *site) commandPage(p *page) error {
	v, err := commandOf(p, p.query)
	if err != nil {
		return err
	}
	if p.who.Roles == nil {
		http.Redirect(p.w, p.r, "/ui/sign-in?next="+url.QueryEscape(p.r.URL.RequestURI()), http.StatusSeeOther)
		return nil
	}
	s.write(p, http.StatusOK, "approve", v)
	return nil
}

// approveCommand hands a code to the command line: to the port of this machine that the browser is
// sent to, or to the person who copies it.
func (s *site) approveCommand(p *page) error {
	v, err := commandOf(p, p.r.PostForm.Get)
	if err != nil {
		return err
	}
	code, err := s.Sessions.Approve(p.ctx(), p.secret, v.Challenge)
	if errors.Is(err, auth.ErrUnknown) || errors.Is(err, auth.ErrChallenge) {
		return wrongCommand("challenge")
	}
	if err != nil {
		return err
	}
	p.w.Header().Set("Referrer-Policy", "no-referrer")
	if v.Port == "" {
		v.Code = code
	} else {
		v.Back = "http://127.0.0.1:" + v.Port + "/?" + url.Values{"code": {code}, "state": {v.State}}.Encode()
	}
	s.write(p, http.StatusOK, "approved", v)
	return nil
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
	if errors.As(err, &invalid) {
		s.signIns.Add(addressOf(p.r), p.now)
	}
	if wait, _ := s.Tokens.Failed(addressOf(p.r), p.now); wait > 0 {
		s.manySignIns(p, next, wait)
		return
	}
	s.showLogin(p, status, next, text)
}

// manySignIns refuses an address with many failures.
func (s *site) manySignIns(p *page, next string, wait time.Duration) {
	p.w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	s.showLogin(p, http.StatusTooManyRequests, next, p.T("login.too_many"))
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
