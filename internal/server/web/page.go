package web

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/i18n"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// page is one request: who asks, and how the answer should look.
type page struct {
	site   *site
	w      http.ResponseWriter
	r      *http.Request
	who    service.Caller
	secret string // of the session
	lang   i18n.Lang
	zone   *time.Location
	now    time.Time
	looks  url.Values // what the reader has chosen: zone, lang, theme, keys, rows
}

// looksCookie is the cookie of the choices that a page is rendered with.
const looksCookie = "belfry-look"

// open reads how the answer should look.
func (s *site) open(w http.ResponseWriter, r *http.Request) *page {
	p := &page{site: s, w: w, r: r, zone: time.UTC, looks: url.Values{}}
	if cookie, err := r.Cookie(looksCookie); err == nil {
		p.looks, _ = url.ParseQuery(cookie.Value)
	}
	if zone, err := cron.LoadZone(p.looks.Get("zone")); err == nil && p.looks.Get("zone") != "" {
		p.zone = zone.Location()
	}
	p.lang = i18n.Choose(cmp.Or(r.URL.Query().Get("lang"), p.looks.Get("lang")), r.Header.Get("Accept-Language"))
	p.now = s.Now().In(p.zone)
	return p
}

// keepLooks makes the browser send the choices with each request.
func (p *page) keepLooks() {
	http.SetCookie(p.w, &http.Cookie{ //nolint:gosec // a theme and a language are no secret
		Name: looksCookie, Value: p.looks.Encode(), Path: "/", MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

func (p *page) ctx() context.Context { return p.r.Context() }

// T returns a text in the language of the page.
func (p *page) T(key string, values ...any) string { return p.lang.T(key, values...) }

// isLive reports whether a script reads the page again, for the parts that are marked as live.
func (p *page) isLive() bool { return p.r.Header.Get("X-Belfry") != "" }

// query returns a parameter of the address.
func (p *page) query(name string) string { return strings.TrimSpace(p.r.URL.Query().Get(name)) }

// with returns the address of this page with another parameter; "" leaves it out.
func (p *page) with(pairs ...string) string {
	q := p.r.URL.Query()
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Del(pairs[i])
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	q.Del("said")
	q.Del("about")
	q.Del("may")
	if len(q) == 0 {
		return p.r.URL.Path
	}
	return p.r.URL.Path + "?" + q.Encode()
}

// Layout is what the frame of each page shows.
type Layout struct {
	Title, Section    string
	Lang              i18n.Lang
	Theme, Zone, Keys string
	Rows              string // roomy, or "" for dense ones
	Who               string
	Role              string
	CanRun            bool
	CanDefine         bool
	CanAdminister     bool
	Form              string // the token of forms
	Path              string // of this page, to come back to
	Open              string // the key of the menu that is open at first: r to run, w to run later, p to pause, c to cancel
	Namespace         string // that the page is limited to
	Namespaces        []string
	Attention         int
	Nodes             int
	Version, Node     string
	Words             template.JSStr // for scripts
	Events            string         // what scripts follow to keep the page current; "" for nothing
	Again             int            // seconds after which the page is read again without an event
	Said              string         // what the last form has done
	Undo              string         // where a form undoes it, "" for nowhere
	MayStart          []mayStart     // runs that may still start as they were before it
	Failed            string
	Commands          []Command
	Bell              bool
}

// Command is what the page shows as a person types it.
type Command struct{ Name, Text string }

// L returns the layout itself, for templates.
func (l *Layout) L() *Layout { return l }

// shortcuts are the keys that pages have.
var shortcuts = []string{"/", "Ctrl K", "?", "g o", "g j", "g r", "g t", "g f", "g n", "g a", "g s", "j k", "x", "Enter", "r", "p", "e", "c", "f", "w", "+ - 0"}

// Shortcuts are the keys with what they do.
func (l *Layout) Shortcuts() [][2]string {
	list := make([][2]string, len(shortcuts))
	for i, key := range shortcuts {
		list[i] = [2]string{key, l.Lang.T("key." + strings.ReplaceAll(key, " ", "_"))}
	}
	return list
}

// bareLayout returns the frame of a page that asks the service nothing.
func (p *page) bareLayout(title, section string, values ...any) *Layout {
	l := &Layout{
		Title: p.T(title, values...), Section: section, Lang: p.lang, Theme: p.looks.Get("theme"), Keys: p.looks.Get("keys"), Rows: p.looks.Get("rows"), Zone: p.zone.String(),
		Who: p.who.Name, Role: p.roles(), Version: p.site.Version, Node: p.site.Node,
		CanRun:        p.may(service.Operate),
		CanDefine:     p.may(service.Define),
		CanAdminister: p.who.May(service.Administer) == nil,
		Path:          p.r.URL.RequestURI(), Open: p.query("open"), Namespace: p.query("namespace"), Words: template.JSStr(p.words()), //nolint:gosec // texts of the catalogue
	}
	if p.secret != "" {
		l.Form = auth.FormToken(p.secret)
	}
	if key := "said." + p.query("said"); i18n.Has(key) {
		about := clean(p.query("about"))
		l.Said = p.T(key, "n", p.query("n"), "name", about)
		switch text := p.query("said"); {
		case about == "":
		case text == "bulk_pause", text == "bulk_delete":
			l.Undo = undoBulk(text, about)
		case text == "deleted":
			l.Undo = "/jobs/" + about + "/restore"
		case text == "paused":
			l.Undo = "/jobs/" + about + "/resume"
		case text == "window_opened":
			l.Undo = "/shared/windows/" + about + "/close"
		case text == "window_closed":
			l.Undo = "/shared/windows/" + about + "/open"
		case text == "drained":
			l.Undo = "/nodes/" + about + "/undrain"
		case text == "marked_snooze":
			l.Undo = "/attention/wake?about=" + url.QueryEscape(about)
		case text == "marked_take":
			l.Undo = "/attention/release?about=" + url.QueryEscape(about)
		}
	}
	return l
}

// may reports whether the caller has a right where the page is: in the namespace of its address, or
// in any.
func (p *page) may(r service.Right) bool {
	return p.mayIn(r, cmp.Or(p.r.PathValue("namespace"), p.query("namespace")))
}

// mayIn reports whether the caller has a right in a namespace; "" is any.
func (p *page) mayIn(r service.Right, namespace string) bool {
	if namespace == "" {
		return p.who.May(r) == nil
	}
	return p.who.MayIn(r, namespace) == nil
}

// roles says what the reader may do.
func (p *page) roles() string {
	if p.who.Roles == nil {
		if p.who.Role == "" {
			return ""
		}
		return p.T("role." + string(p.who.Role))
	}
	var list []string
	for _, namespace := range slices.Sorted(maps.Keys(p.who.Roles)) {
		text := p.T("role." + string(p.who.Roles[namespace]))
		if namespace != "" {
			text += " (" + namespace + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// layout returns the frame of a page.
func (p *page) layout(title, section string, values ...any) *Layout {
	l := p.bareLayout(title, section, values...)
	l.shows(p.site.frame(p.ctx(), p.who, frameFor))
	ids := strings.Fields(p.query("may"))
	for _, text := range ids[:min(len(ids), mayStartMax)] {
		id, err := job.ParseID(text)
		if err != nil {
			continue
		}
		if r, err := p.site.Service.Runs.Get(p.ctx(), p.who, id); err == nil && r.State == job.StateRunning {
			l.MayStart = append(l.MayStart, p.mayStart([]client.Run{r})...)
		}
	}
	return l
}

// mayStart is a run that a node has claimed, and that a change has not reached.
type mayStart struct {
	ID, Job, Node string
	Due           When
}

func (p *page) mayStart(runs []client.Run) (list []mayStart) {
	for i := range runs {
		list = append(list, mayStart{runs[i].ID.String(), runs[i].Job, clean(runs[i].Node), p.at(runs[i].Due)})
	}
	return list
}

// shows takes over what a frame shows.
func (l *Layout) shows(f frame) {
	l.Attention, l.Nodes, l.Namespaces = len(open(f.attention)), f.nodes, f.namespaces
}

// frame is what the frame of pages shows of the server.
type frame struct {
	noChannel  bool // no notification channel exists
	read       time.Time
	listed     time.Time // when the namespaces were read
	attention  []client.Attention
	recent     map[string][]client.RecentRun // of the jobs of attention
	nodes      int
	list       []client.Node
	namespaces []string
	err        error // why there is no attention
}

// frameFor is how long a frame is believed: it is on each page. attentionFor is how long the
// overview believes its list, which takes some dozens of reads: many may look at it.
// namespacesFor is how long a new namespace may be missing in the menu.
const (
	frameFor      = 10 * time.Second
	attentionFor  = time.Second
	namespacesFor = time.Minute
)

// frame returns what the frame shows to a caller. What cannot be read is left out: the page
// itself says what is wrong.
func (s *site) frame(ctx context.Context, who service.Caller, most time.Duration) frame {
	now := s.Now()
	old, _ := s.known.Load(who.Says())
	f, _ := old.(frame)
	if age := now.Sub(f.read); 0 <= age && age < most {
		return f
	}
	f = frame{read: now, listed: f.listed, namespaces: f.namespaces}
	var reads sync.WaitGroup // at once: each takes several round trips to the store
	reads.Go(func() {
		if f.attention, f.err = s.Service.Attention.List(ctx, who, ""); f.err == nil {
			f.recent, f.err = s.recent(ctx, who, f.attention)
		}
		if f.err == nil {
			f.noChannel, f.err = s.Service.Notifications.Missing(ctx, who)
		}
	})
	reads.Go(func() {
		list, err := s.Service.Nodes.List(ctx, who)
		if err != nil {
			return
		}
		f.list = list
		names := make([]string, len(list))
		for i, node := range list {
			names[i] = node.Name
			if node.State == "live" || node.State == "drained" {
				f.nodes++
			}
		}
		s.hosts.Store(&names)
	})
	if age := now.Sub(f.listed); age < 0 || age >= namespacesFor {
		reads.Go(func() {
			if list, err := s.Service.Jobs.Namespaces(ctx, who); err == nil {
				f.listed, f.namespaces = now, list
			}
		})
	}
	reads.Wait()
	if f.err != nil {
		return f
	}
	s.known.Store(who.Says(), f)
	return f
}

// words are the texts of scripts, in JSON.
func (p *page) words() string {
	labels := map[string]string{}
	for _, key := range scriptTexts {
		// The palette offers what it has a word for.
		if (strings.HasPrefix(key, "jobs.") || key == "job.pause" || key == "job.resume" || key == "job.edit") && !p.may(service.Define) || (key == "job.run_now" || key == "job.backfill" || strings.HasPrefix(key, "run.") || strings.HasPrefix(key, "overview.")) && !p.may(service.Operate) {
			continue
		}
		labels[strings.TrimPrefix(key, "js.")] = p.T(key)
	}
	data, _ := json.Marshal(labels) // a map of texts has no other form
	return string(data)
}

// show answers with a page.
func (p *page) show(name string, view any) error {
	p.site.write(p, http.StatusOK, name, view)
	return nil
}

// done answers a form: back to a page that says what was done.
func (p *page) done(address, text string, pairs ...string) error {
	u, err := url.Parse(ours(address))
	if err != nil {
		u = &url.URL{Path: "/"}
	}
	q := u.Query()
	q.Del("may")
	q.Set("said", text)
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	u.RawQuery = q.Encode()
	http.Redirect(p.w, p.r, u.String(), http.StatusSeeOther)
	return nil
}

// mayStartMax is how many runs a page names that may still start: as many as fit on a screen.
const mayStartMax = 20

// changed is done for a change of jobs, of which some runs may still start as before.
func (p *page) changed(address, text string, mayStart []client.Run, pairs ...string) error {
	var ids []string
	for i := range mayStart[:min(len(mayStart), mayStartMax)] {
		ids = append(ids, mayStart[i].ID.String())
	}
	if len(ids) > 0 {
		pairs = append(pairs, "may", strings.Join(ids, " "))
	}
	return p.done(address, text, pairs...)
}

// functions are what templates call.
func (s *site) functions(lang i18n.Lang) template.FuncMap {
	return template.FuncMap{
		"t":      lang.T,
		"asset":  func(name string) string { return s.assets.prefix + name },
		"icon":   func(name string) iconView { return iconView{s.assets.prefix + "icons.svg#" + name, ""} },
		"spin":   func(name string) iconView { return iconView{s.assets.prefix + "icons.svg#" + name, "spin"} },
		"dict":   dict,
		"join":   strings.Join,
		"clean":  clean,
		"short":  short,
		"host":   s.host,
		"anchor": anchor,
	}
}

type iconView struct{ Address, Class string }

// dict makes a map of pairs, for templates with several values.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict has %d values, which are no pairs", len(pairs))
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m, nil
}
