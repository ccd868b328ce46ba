package web

import (
	"cmp"
	"context"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// sharedView has what jobs share: calendars, pools, windows, hooks and the names of secrets.
type sharedView struct {
	*Layout
	Calendars, Pools, Windows, Hooks []sharedRow
	Secrets                          []secretRow
}

// sharedRow is a calendar, a pool, a window or a hook.
type sharedRow struct {
	Name, Description string
	Text              string // how many slots a pool has, what a window does, or the address of a hook
	YAML              string // the document, to copy
	Lines             []string
	Version           int64
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
func (s *site) shared(p *page) error {
	v := sharedView{Layout: p.layout("shared.title", "shared")}
	v.Section = "settings"
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
	return p.show("shared", v)
}

// rateText describes the rate of a pool.
func rateText(p *page, rate *job.Rate) string {
	return p.T("shared.rate", "n", rate.Limit, "per", rate.Per.String())
}

func (p *page) sharedRow(d job.Document) (row sharedRow, err error) {
	row.Name = d.FullName()
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
		row.Description, row.Version, row.Text = clean(d.Window.Description), d.Window.Version, cmp.Or(string(d.Window.Action), string(job.WindowHold))+" "+d.Window.For.String()
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
