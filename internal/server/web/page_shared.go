package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// sharedView has what jobs share: calendars, pools, windows, hooks and the names of secrets.
type sharedView struct {
	*Layout
	Calendars, Pools, Windows, Hooks []sharedRow
	Secrets                          []secretRow
	Actions, Forms                   []string
	Made                             []Command // the address of a new hook and its secret, which are shown once
	MadeName                         string
}

// sharedRow is a calendar, a pool, a window or a hook.
type sharedRow struct {
	Name, Description string
	Text              string // how many slots a pool has, what a window does, or the address of a hook
	YAML              string // the document, to copy
	Lines             []string
	Version           int64
	Open              bool   // a window is
	Address           string // of its actions; "" for what has none
	Closed            bool   // a window was closed by hand
	From, Edited      string // the commit that it is of, and since which one it was changed by hand
	Diff              []diffLine
}

// secretRow is a secret without its value.
type secretRow struct {
	Name, Description string
	From              string // where its value is, "" for the store
	Version           int64
	Changed           When
	By                string
}

// shared is the page of what jobs share.
func (s *site) shared(p *page) error { return s.showShared(p, http.StatusOK, &sharedView{}) }

func (s *site) showShared(p *page, status int, v *sharedView) error {
	v.Layout = p.layout("shared.title", "shared")
	v.Section, v.Path = "settings", "/shared"
	v.Actions, v.Forms = job.WindowAction("").Values(), job.HookForm("").Values()
	namespace := p.query("namespace")
	for _, kind := range []struct {
		list func(context.Context, service.Caller, string) ([]job.Document, error)
		rows *[]sharedRow
	}{{s.Service.Calendars.List, &v.Calendars}, {s.Service.Pools.List, &v.Pools}, {s.Service.Windows.List, &v.Windows}, {s.Service.Hooks.List, &v.Hooks}} {
		list, err := kind.list(p.ctx(), p.who, namespace)
		if err != nil {
			return err
		}
		for _, d := range list {
			row, err := p.sharedRow(d)
			if err != nil {
				return err
			}
			*kind.rows = append(*kind.rows, row)
		}
	}
	openings, err := s.Service.Load.Openings(p.ctx(), p.who, namespace, p.now, p.now.Add(time.Second))
	if err != nil {
		return err
	}
	for i := range v.Windows {
		row := &v.Windows[i]
		of, _ := splitName(row.Name)
		if row.Open = slices.ContainsFunc(openings, func(o client.Opening) bool { return o.Window == row.Name }); p.mayIn(service.Define, of) {
			row.Address = "/shared/windows/" + row.Name
		}
	}
	secrets, err := s.Service.Secrets.List(p.ctx(), p.who, namespace)
	if err != nil {
		return err
	}
	for i := range secrets {
		one := &secrets[i]
		row := secretRow{Name: one.FullName(), Description: clean(one.Description), Version: one.Version, Changed: p.minute(one.Changed), By: clean(one.By)}
		for _, from := range []struct{ key, at string }{{"shared.file", one.File}, {"shared.env", one.Env}, {"shared.vault", one.Vault}} {
			if from.at != "" {
				row.From = p.T(from.key, "at", clean(from.at))
			}
		}
		v.Secrets = append(v.Secrets, row)
	}
	v.Commands = []Command{
		{p.T("shared.calendars"), "belfry calendar list"}, {p.T("shared.pools"), "belfry pool list"}, {p.T("shared.windows"), "belfry window list"}, {p.T("shared.hooks"), "belfry hook list"},
		{p.T("shared.secrets"), "belfry secret list"}, {p.T("shared.change"), "belfry apply FILE"},
	}
	s.write(p, status, "shared", v)
	return nil
}

// rateText describes the rate of a pool.
func rateText(p *page, rate *job.Rate) string {
	return p.T("shared.rate", "n", rate.Limit, "per", rate.Per.String())
}

func (p *page) sharedRow(d job.Document) (row sharedRow, err error) {
	row.Name = d.FullName()
	if from := d.From(); from != nil {
		commit := from.Commit[:min(len(from.Commit), 7)]
		row.From = clean(strings.TrimSpace(p.T("job.source_at", "url", from.URL, "commit", commit, "file", from.File)))
		if from.Edited {
			row.Edited, row.Diff = p.T("job.edited_since", "commit", commit), diffLines(from.Diff)
		}
		d = d.CameFrom(nil)
	}
	switch {
	case d.Calendar != nil:
		row.Description, row.Version = clean(d.Calendar.Description), d.Calendar.Version
	case d.Pool != nil:
		row.Description, row.Version = clean(d.Pool.Description), d.Pool.Version
		var limits []string
		if n := d.Pool.Slots.Size; n > 0 {
			limits = append(limits, p.T("shared.slots", "n", n))
		}
		if rate := d.Pool.Slots.Rate; rate != nil {
			limits = append(limits, rateText(p, rate))
		}
		if row.Text = strings.Join(limits, ", "); d.Pool.Slots.PerKey {
			row.Text = p.T("shared.each", "limits", row.Text)
		}
	case d.Window != nil:
		row.Description, row.Version, row.Text = clean(d.Window.Description), d.Window.Version, p.T("shared.action."+string(cmp.Or(d.Window.Action, job.WindowHold)))+" "+d.Window.For.String()
		row.Closed = !d.Window.Closed.IsZero()
	case d.Hook != nil:
		row.Description, row.Version, row.Text = clean(d.Hook.Description), d.Hook.Version, d.Hook.Address()
	}
	document, err := client.DocumentOf(d)
	if err != nil {
		return row, err
	}
	if row.YAML, err = yamlOf(document); err != nil {
		return row, err
	}
	for _, line := range diffLines(row.YAML) {
		row.Lines = append(row.Lines, line.Text)
	}
	return row, nil
}

// field returns a field of a form without the space around it.
func (p *page) field(name string) string { return strings.TrimSpace(p.r.PostForm.Get(name)) }

// put creates a document of a kind, and refuses a name that exists.
func (p *page) put(kinds Shared, kind job.Kind, name service.Name, fields map[string]any) (job.Document, error) {
	for key, value := range fields {
		if value == "" {
			delete(fields, key)
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return job.Document{}, err
	}
	draft, err := service.ReadNamed(text, kind, name)
	if err != nil {
		return job.Document{}, err
	}
	d, _, err := kinds.Put(p.ctx(), p.who, name, draft, service.Expect{Absent: true})
	return d, err
}

// openWindow makes a maintenance window that is open from now.
func (s *site) openWindow(p *page) error {
	name := service.Name{Namespace: cmp.Or(p.field("namespace"), job.DefaultNamespace), Name: p.field("name")}
	match := map[string]any{}
	if label := p.field("label"); label != "" {
		key, value, _ := strings.Cut(label, "=")
		match["labels"] = map[string]string{key: value}
	}
	if in := strings.FieldsFunc(p.field("in"), func(r rune) bool { return r == ',' || r == ' ' }); len(in) > 0 {
		match["namespaces"] = in
	}
	if _, err := p.put(s.Service.Windows, job.KindWindow, name, map[string]any{
		"description": p.field("reason"), "match": match, "for": p.field("for"), "action": p.field("action"),
		"schedule": map[string]any{"at": p.now.UTC().Truncate(time.Second)},
	}); err != nil {
		return err
	}
	return p.done("/shared", "window_opened", "about", name.String())
}

// closeWindow ends the opening of a window: runs that it holds are due at once.
func (s *site) closeWindow(p *page) error {
	return s.markWindow(p, "window_closed", p.now.UTC().Truncate(time.Second))
}

// reopenWindow opens a window again until its end.
func (s *site) reopenWindow(p *page) error { return s.markWindow(p, "window_opened", time.Time{}) }

func (s *site) markWindow(p *page, said string, closed time.Time) error {
	d, err := s.Service.Windows.Get(p.ctx(), p.who, p.namedJob())
	if err != nil {
		return err
	}
	version := d.Version()
	d = d.Bare()
	window := *d.Window
	window.Closed, d.Window = closed, &window
	if _, _, err := s.Service.Windows.Put(p.ctx(), p.who, p.namedJob(), service.Draft{Document: d}, service.Expect{Versions: []int64{version}}); err != nil {
		return err
	}
	return p.done("/shared", said, "about", p.namedJob().String())
}

// createHook makes a hook, with a new secret unless it names one, and shows both in the answer, as createToken does.
func (s *site) createHook(p *page) error {
	namespace, starts := splitName(p.field("job"))
	name, form, secret := service.Name{Namespace: namespace, Name: p.field("name")}, job.HookForm(p.field("from")), p.field("secret")
	value := ""
	if secret == "" && form != job.HookStripe { // Stripe makes the secret of an endpoint
		secret = "hook_" + strings.NewReplacer("-", "_", ".", "_").Replace(name.Name)
		there, err := s.Service.Secrets.List(p.ctx(), p.who, namespace)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(there, func(i client.SecretInfo) bool { return i.Name == secret }) {
			return service.Refuse(client.TypeExists, phrase.KindExists.Of("secret", secret))
		}
		value = hookSecret(form)
		if _, _, err := s.Service.Secrets.Set(p.ctx(), p.who, service.Name{Namespace: namespace, Name: secret}, client.SecretRequest{Value: value, Description: "hook " + name.String()}); err != nil {
			return err
		}
	}
	d, err := p.put(s.Service.Hooks, job.KindHook, name, map[string]any{"job": starts, "from": string(form), "secret": secret, "description": p.field("description")})
	if err != nil {
		if value != "" {
			return cmp.Or(s.Service.Secrets.Delete(p.ctx(), p.who, service.Name{Namespace: namespace, Name: secret}), err)
		}
		return err
	}
	v := &sharedView{MadeName: name.String()}
	address := p.reached() + d.Hook.Address()
	if form == job.HookURL && value != "" {
		address, value = strings.TrimSuffix(address, "SECRET")+value, ""
	}
	if v.Made = []Command{{p.T("shared.address"), address}}; value != "" {
		v.Made = append(v.Made, Command{p.T("shared.secret"), value})
	}
	return s.showShared(p, http.StatusCreated, v)
}

// hookSecret makes a secret as long as the signature's hash.
func hookSecret(form job.HookForm) string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // crypto/rand never fails
	if form == job.HookStandard {
		return "whsec_" + base64.StdEncoding.EncodeToString(key)
	}
	return hex.EncodeToString(key)
}
