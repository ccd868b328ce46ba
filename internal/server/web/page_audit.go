package web

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/i18n"
)

// auditView is the list of changes.
type auditView struct {
	*Layout
	Object, ActorText, Group string
	Actions, Ranges          []choice
	JSON                     string // the same from the API
	Days                     []auditDay
	Older                    string
	Filtered                 bool
}

type auditDay struct {
	Name    string
	Date    string
	Records []auditRow
}

type auditRow struct {
	change
	Icon, Detail string
	Kind         string // the action, to filter by
	Version      int64
	Fields       []fieldChange
	Compare, Run string
	Client, From string
	Group        string
	// Others are the changes of the same request, which are shown as one entry that opens.
	Others  []auditRow
	Count   int
	Summary string
}

type fieldChange struct{ Path, Before, After string }

const (
	// auditPage is how many changes a page has.
	auditPage = 100
	// summaryNames is how many objects a closed entry of several changes names.
	summaryNames = 3
)

// auditActions are offered as filters.
var auditActions = []string{"job", "job.create", "job.change", "job.delete", "job.restore", "job.pause", "job.resume", "run", "run.hand", "run.cancel", "run.backfill", "calendar", "pool", "window", "hook", "source", "channel", "executors", "secret", "node", "token"}

func (s *site) audit(p *page) error {
	l := p.layout("audit.title", "audit")
	v := auditView{Layout: l, Object: p.query("object"), ActorText: p.query("actor"), Group: p.query("group")}
	action := p.query("action")
	for _, a := range auditActions {
		v.Actions = append(v.Actions, choice{Name: p.T("audit.only." + a), Value: a, Current: a == action})
	}
	if action != "" && !slices.Contains(auditActions, action) {
		v.Actions = append(v.Actions, choice{Name: clean(action), Value: action, Current: true})
	}
	v.Filtered = p.query("range") != "" || v.Object != "" || v.ActorText != "" || action != "" || v.Group != "" || l.Namespace != ""
	q := client.AuditQuery{Namespace: l.Namespace, Object: v.Object, Actor: v.ActorText, Action: action, Group: v.Group, PageSize: auditPage, PageToken: p.query("page")}
	since := ""
	for _, r := range auditRanges {
		current := p.query("range") == r.name
		if current {
			q.From, since = p.now.Add(-r.span).UTC().Truncate(time.Minute), r.name
		}
		v.Ranges = append(v.Ranges, choice{Name: p.T("runs.last", "d", p.coarse(r.span)), Value: r.name, Current: current})
	}
	v.JSON = "/api/v1/audit?" + auditQuery(&q)
	page, err := s.Service.Audit.List(p.ctx(), p.who, q)
	if err != nil {
		return err
	}
	for i := range page.Items {
		v.add(p.auditDay(page.Items[i].Time), p.auditRow(&page.Items[i]))
	}
	if page.NextPageToken != "" {
		v.Older = p.with("page", page.NextPageToken)
	}
	l.Events = "kind=job&kind=node&kind=token"
	l.Commands = []Command{
		{p.T("command.shell"), "belfry audit" + flagIf("--object", v.Object) + flagIf("--actor", v.ActorText) + flagIf("--action", action) + flagIf("--since", since)},
		{"curl", p.curl("GET", v.JSON, "")},
	}
	return p.show("audit", v)
}

// auditRanges are the times that the audit is cut to.
var auditRanges = []struct {
	name string
	span time.Duration
}{{"24h", 24 * time.Hour}, {"7d", 7 * 24 * time.Hour}, {"30d", 30 * 24 * time.Hour}}

// auditQuery is the query of the API for what a page shows.
func auditQuery(q *client.AuditQuery) string {
	values := url.Values{}
	for name, value := range map[string]string{"namespace": q.Namespace, "object": q.Object, "actor": q.Actor, "action": q.Action, "group": q.Group} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if !q.From.IsZero() {
		values.Set("from", q.From.Format(time.RFC3339))
	}
	return values.Encode()
}

func (p *page) auditRow(c *client.AuditRecord) auditRow {
	why := c.DetailArgs.Reason(c.Detail, c.DetailCode)
	row := auditRow{change: p.change(c), Icon: actionIcon(c.Action), Kind: c.Action, Detail: p.reason(why), Version: c.Version, Group: c.Group}
	if run := reason.RunOf.Arg(why, "run"); run != "" {
		row.Run = "/runs/" + run
	}
	row.At.Text = c.Time.In(p.zone).Format("15:04:05")
	if c.Client != "" {
		row.Client = p.T("audit.client." + c.Client)
		row.From = p.T("audit.from", "client", row.Client, "address", clean(c.Address))
	}
	for _, f := range c.Changes {
		row.Fields = append(row.Fields, fieldChange{f.Path, clean(f.Before), clean(f.After)})
	}
	if row.Address != "" && c.Version > 1 {
		row.Compare = changeAddress(row.Address, c.Version, c.Version-1)
	}
	return row
}

// add adds a change to its day: to the entry of its request, if that is the last one.
func (v *auditView) add(day auditDay, row auditRow) {
	if len(v.Days) == 0 || v.Days[len(v.Days)-1].Name != day.Name {
		v.Days = append(v.Days, day)
	}
	into := &v.Days[len(v.Days)-1]
	if n := len(into.Records); n > 0 && row.Group != "" && into.Records[n-1].Group == row.Group {
		first := &into.Records[n-1]
		first.Others = append(first.Others, row)
		first.Count = len(first.Others) + 1
		if first.Summary == "" {
			first.Summary = first.Object
		}
		if first.Count <= summaryNames {
			first.Summary += ", " + row.Object
		} else if first.Count == summaryNames+1 {
			first.Summary += ", …"
		}
		return
	}
	into.Records = append(into.Records, row)
}

// auditDay names the day of a moment.
func (p *page) auditDay(t time.Time) auditDay {
	t = t.In(p.zone)
	date := p.dated(t)
	switch days := int(midnight(p.now).Sub(midnight(t)).Round(24*time.Hour) / (24 * time.Hour)); days {
	case 0:
		return auditDay{Name: p.T("today"), Date: date}
	case 1:
		return auditDay{Name: p.T("yesterday"), Date: date}
	}
	return auditDay{Name: date}
}

// action says what was done.
func (p *page) action(action string) string {
	if key := "action." + action; i18n.Has(key) {
		return p.T(key)
	}
	return action
}

func actionIcon(action string) string {
	object, verb, _ := strings.Cut(action, ".")
	switch {
	case verb == "pause":
		return "pause"
	case verb == "resume", verb == "hand", verb == "backfill", verb == "retry":
		return "play"
	case verb == "create", verb == "restore":
		return "plus"
	case verb == "delete", verb == "cancel", verb == "revoke":
		return "x"
	case object == "node":
		return "drain"
	case object == "token":
		return "key"
	}
	return "edit"
}
