package web

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/i18n"
)

// settingsView is what a reader chooses, and what the server says of itself.
type settingsView struct {
	*Layout
	Looks    []editGroup
	Zones    []string
	Tokens   []tokenRow
	Sessions []sessionRow
	Nodes    int
	MadeName string
	Made     string // a new token, shown once
	Badges   []badgeRow
	Badge    *badgeRow // a new badge, whose link is shown once
	Facts    []fact
	Hints    []client.Hint
}

type tokenRow struct {
	Name, Role, Namespace, By string
	Created                   When
	Expires, Used             When
	Expired, IsOwn            bool
	Terms                     string
}

// badgeRow is a badge.
type badgeRow struct {
	client.BadgeOf
	Shows, Address string // what it shows, and where that is in full
	Made           When
	By             string
	Picture        string // the path of a new one
	Links          []Command
}

// sessionRow is a session of a browser or a command.
type sessionRow struct {
	ID, Holder, By string
	Begun, Ends    When
	IsOwn          bool
}

func (s *site) settings(p *page) error { return s.showSettings(p, http.StatusOK, &settingsView{}) }

// zones are offered for choice; any zone of the table may be typed.
var zones = []string{"UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/Los_Angeles", "Asia/Shanghai", "Asia/Tokyo", "Asia/Kolkata", "Australia/Sydney"}

// choose offers values of a choice, each with its name.
func choose(id, title, value string, named ...string) editGroup {
	g := editGroup{ID: id, Title: title}
	for i := 0; i+1 < len(named); i += 2 {
		g.Kinds = append(g.Kinds, choice{Value: named[i], Name: named[i+1], Current: named[i] == value})
	}
	return g
}

// showSettings shows the settings, below what a view has already.
func (s *site) showSettings(p *page, status int, v *settingsView) error {
	l := p.layout("settings.title", "settings")
	v.Layout, v.Zones = l, zones
	v.Looks = []editGroup{
		choose("lang", p.T("settings.lang"), string(p.lang), "en", "English", "zh", "中文"),
		choose("theme", p.T("settings.theme"), l.Theme, "", p.T("settings.system"), "light", p.T("settings.light"), "dark", p.T("settings.dark")),
		choose("rows", p.T("settings.rows"), l.Rows, "", p.T("settings.dense"), "roomy", p.T("settings.roomy")),
		choose("keys", p.T("settings.single"), l.Keys, "", p.T("settings.on"), "off", p.T("settings.off")),
	}
	var err error
	if v.Facts, v.Hints, err = s.serverFacts(p); err != nil {
		return err
	}
	if l.CanAdminister {
		list, err := s.Service.Access.List(p.ctx(), p.who)
		if err != nil {
			return err
		}
		for i := range list {
			t := &list[i]
			v.Tokens = append(v.Tokens, tokenRow{
				Name: t.Name, Role: p.T("role." + string(t.Role)), Namespace: t.Namespace, By: t.By, Created: p.minute(t.Created),
				Expires: p.minute(t.Expires), Expired: t.Expired, IsOwn: t.Name == p.who.Name, Used: p.minute(t.LastUsed), Terms: p.terms(t),
			})
		}
	}
	if l.CanAdminister {
		if v.Sessions, err = s.sessionRows(p); err != nil {
			return err
		}
	}
	if l.CanDefine {
		badges, err := s.Service.Badges.List(p.ctx(), p.who)
		if err != nil {
			return err
		}
		for i := range badges {
			v.Badges = append(v.Badges, p.badge(&badges[i]))
		}
	}
	l.Commands = []Command{{p.T("command.shell"), "belfry token list"}, {p.T("settings.new_token"), "belfry token create NAME --role viewer"}}
	s.write(p, status, "settings", v)
	return nil
}

// badge shows a badge; a new one with its links.
func (p *page) badge(b *client.Badge) badgeRow {
	row := badgeRow{BadgeOf: b.BadgeOf, Shows: clean(b.Job), Address: "/jobs/" + b.Job, Made: p.minute(b.Created), By: clean(b.By)}
	if b.Label != "" {
		row.Shows, row.Address = clean(b.Label), "/jobs?"+url.Values{"namespace": {b.Namespace}, "q": {"label:" + b.Label}}.Encode()
	}
	if b.SVG != "" {
		lang := ""
		if p.lang != i18n.English {
			lang = "?lang=" + string(p.lang)
		}
		at := p.reached()
		row.Picture = b.SVG + lang
		row.Links = []Command{{"Markdown", fmt.Sprintf("[![%s](%s)](%s)", row.Shows, at+row.Picture, at+row.Address)}, {"SVG", at + row.Picture}, {"JSON", at + b.JSON + lang}}
	}
	return row
}

func (s *site) sessionRows(p *page) (rows []sessionRow, err error) {
	list, err := s.Service.Access.Sessions(p.ctx(), p.who)
	if err != nil {
		return nil, err
	}
	own := auth.HashOf(p.secret)
	for i := range list[:min(len(list), sessionsShown)] {
		one := &list[i]
		row := sessionRow{ID: one.ID, Holder: clean(one.Holder), By: p.T("settings.by_token"), Begun: p.relative(one.Begun), Ends: p.minute(one.Ends), IsOwn: one.Hash == own}
		if one.Provider != "" {
			row.By = clean(one.Provider)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// sessionsShown is how many sessions the settings list, the latest first: a page of them.
const sessionsShown = 100

// terms says what a token for workers is limited to.
func (p *page) terms(t *client.Token) string {
	var list []string
	if t.Joins != nil {
		list = append(list, p.T("settings.joins", "n", *t.Joins))
	}
	list = append(list, t.Labels...)
	if t.Certificate != "" {
		list = append(list, p.T("settings.certificate", "name", t.Certificate))
	}
	return strings.Join(list, " · ")
}

// serverFacts are what the server says of itself, and what could be better about it.
func (s *site) serverFacts(p *page) ([]fact, []client.Hint, error) {
	about, err := s.Service.Nodes.About(p.ctx(), p.who)
	if err != nil {
		return nil, nil, err
	}
	state := ""
	for _, n := range s.frame(p.ctx(), p.who, frameFor).list {
		if n.Name == about.Node {
			state = p.T("node." + n.State)
		}
	}
	list := []fact{
		{Name: p.T("settings.version"), Value: strings.TrimSuffix(cmp.Or(about.Version, s.Version)+", "+about.Built, ", ")},
		{Name: p.T("settings.node"), Value: about.Node}, {Name: p.T("settings.state"), Value: state},
		{Name: p.T("settings.address"), Value: p.r.Host}, {Name: p.T("settings.roles"), Value: strings.Join(about.Roles, ", ")},
		{Name: p.T("settings.store"), Value: about.Store}, {Name: p.T("settings.store_version"), Value: about.StoreVersion}, {Name: p.T("settings.history"), Value: about.History},
		{Name: p.T("settings.zones"), Value: about.Zones}, {Name: p.T("settings.default_zone"), Value: about.Timezone},
		{Name: p.T("nav.nodes"), Value: fmt.Sprint(about.Nodes)},
	}
	if !about.Started.IsZero() {
		list = append(list, fact{Name: p.T("settings.started"), Value: p.distance(about.Started)})
	}
	if !about.Backup.IsZero() {
		list = append(list, fact{Name: p.T("settings.backup"), Value: p.distance(about.Backup)})
	}
	list = slices.DeleteFunc(list, func(f fact) bool { return f.Value == "" })
	for i := range about.Hints {
		h := &about.Hints[i]
		h.Check, h.Found = p.reason(h.CheckArgs.Reason(h.Check, h.CheckCode)), p.reason(h.FoundArgs.Reason(h.Found, h.FoundCode))
		h.Do = p.reason(h.DoArgs.Reason(h.Do, h.DoCode))
	}
	return list, about.Hints, nil
}
