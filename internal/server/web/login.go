package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/i18n"
)

// loginView is the page for strangers.
type loginView struct {
	*Layout
	Next, Wrong, Host string
	SignInAt          string // the provider; "" for none
}

func (s *site) loginPage(w http.ResponseWriter, r *http.Request) {
	p := s.open(w, r)
	next := ours(p.query("next"))
	if _, err := s.holder(r.Context(), auth.SessionOf(r)); err == nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	if lang := p.query("lang"); lang != "" {
		p.looks.Set("lang", string(i18n.Choose(lang, "")))
		p.keepLooks()
		http.Redirect(w, r, "/ui/login?next="+url.QueryEscape(next), http.StatusSeeOther)
		return
	}
	s.showLogin(p, http.StatusOK, next, "")
}

func (s *site) showLogin(p *page, status int, next, wrong string) {
	l := p.bareLayout("login.title", "")
	s.write(p, status, "login", loginView{Layout: l, Next: next, Wrong: wrong, Host: p.r.Host, SignInAt: s.SignInAt})
}

// loginMax bounds the form of the login page: a token and an address, of callers without a token.
const loginMax = 8 << 10

// login begins a session for a token, or for a code that stands for one.
func (s *site) login(w http.ResponseWriter, r *http.Request) {
	p := s.open(w, r)
	r.Body = http.MaxBytesReader(w, r.Body, loginMax)
	if err := r.ParseForm(); err != nil {
		s.showLogin(p, http.StatusBadRequest, "/", p.T("login.unread"))
		return
	}
	next := ours(r.PostForm.Get("next"))
	token, err := s.Tokens.Authenticate(r.Context(), strings.TrimSpace(r.PostForm.Get("token")))
	if code := r.PostForm.Get("code"); code != "" {
		token, err = s.Sessions.Redeem(r.Context(), code)
	}
	switch {
	case errors.Is(err, auth.ErrExpired):
		s.showLogin(p, http.StatusUnauthorized, next, p.T("login.expired", "name", token.Name))
		return
	case errors.Is(err, auth.ErrUnknown):
		s.wrongToken(p, next, r.PostForm.Get("code") != "")
		return
	case err != nil:
		s.fail(p, err)
		return
	}
	secret, err := s.Sessions.Begin(r.Context(), token.Hash)
	if err != nil {
		s.Log.Error("a session could not be kept", "error", err)
		s.fail(p, err)
		return
	}
	auth.SetSession(w, r, secret)
	if zone := r.PostForm.Get("zone"); p.looks.Get("zone") == "" && zone != "" {
		if _, err := cron.LoadZone(zone); err == nil {
			p.looks.Set("zone", zone)
			p.keepLooks()
		}
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// wrongToken counts a failure together with failures of the API.
func (s *site) wrongToken(p *page, next string, code bool) {
	address := addressOf(p.r)
	wait, first := s.Tokens.Failed(address, p.now)
	if first {
		s.Log.Warn("an address sends many invalid tokens to the login page", "address", address)
	}
	if wait > 0 {
		p.w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
		s.showLogin(p, http.StatusTooManyRequests, next, p.T("login.too_many"))
		return
	}
	key := "login.wrong"
	if code {
		key = "login.wrong_code"
	}
	s.showLogin(p, http.StatusUnauthorized, next, p.T(key))
}

func (s *site) logout(p *page) error {
	end := s.Sessions.End
	if p.r.PostForm.Get("all") != "" {
		end = s.Sessions.EndAll
	}
	if err := end(p.ctx(), p.secret); err != nil {
		s.Log.Warn("the end of a session could not be written", "error", err)
	}
	auth.SetSession(p.w, p.r, "")
	http.Redirect(p.w, p.r, "/ui/login", http.StatusSeeOther)
	return nil
}

// look keeps what the reader has chosen, in a cookie, so that pages are right at once.
func (s *site) look(p *page) error {
	form := p.r.PostForm
	for _, name := range []string{"lang", "theme", "zone", "keys", "rows"} {
		if !form.Has(name) {
			continue
		}
		value := form.Get(name)
		switch name {
		case "lang":
			value = string(i18n.Choose(value, ""))
		case "theme":
			if value != "light" && value != "dark" {
				value = ""
			}
		case "zone":
			if _, err := cron.LoadZone(value); err != nil {
				return p.done(form.Get("back"), "no_zone")
			}
		case "rows":
			if value != "roomy" {
				value = ""
			}
		case "keys":
			if value != "off" {
				value = ""
			}
		}
		p.looks.Del(name)
		if value != "" {
			p.looks.Set(name, value)
		}
	}
	p.keepLooks()
	http.Redirect(p.w, p.r, ours(form.Get("back")), http.StatusSeeOther)
	return nil
}
