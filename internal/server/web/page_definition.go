package web

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/client"
)

// definitionView is a version of a job and its difference from another.
type definitionView struct {
	*jobHead
	Versions []versionRow
	Older    string
	Shown    int64
	Since    int64
	By       string
	At       When
	Modes    []tab
	Lines    []diffLine
	Text     []string
	YAML     string // the version as a document, to copy
	RollBack int64  // the version that a button restores; 0 for none
	Followed string // the jobs that a deletion leaves without the runs that start them
}

type versionRow struct {
	Version int64
	Address string
	Actor   string
	At      When
	Current bool
	Latest  bool
	Changed string // the fields that differ from the version before, or what was done
}

// versionRows is how many versions a page lists.
const versionRows = 20

func (s *site) definition(p *page) error {
	h, err := s.jobHeadOf(p, "definition")
	if err != nil {
		return err
	}
	v := definitionView{jobHead: h, Shown: h.Version}
	name := p.namedJob()
	list, err := s.Service.Jobs.Revisions(p.ctx(), p.who, name, versionRows, p.query("page"))
	if err != nil {
		return err
	}
	if list.NextPageToken != "" {
		v.Older = p.with("page", list.NextPageToken)
	}
	if n, err := strconv.ParseInt(p.query("version"), 10, 64); err == nil && n > 0 {
		v.Shown = n
	}
	v.Since = v.Shown - 1
	if n, err := strconv.ParseInt(p.query("since"), 10, 64); err == nil && n > 0 {
		v.Since = n
	}
	switch {
	case v.Shown != h.Version:
		v.RollBack = v.Shown
	case v.Since > 0:
		v.RollBack = v.Since
	}
	changed, err := s.changedFields(p)
	if err != nil {
		return err
	}
	for i := range list.Items {
		r := &list.Items[i]
		v.Versions = append(v.Versions, versionRow{
			Version: r.Version, Address: fmt.Sprintf("%s/definition?version=%d", h.Address, r.Version), Actor: clean(r.Actor), At: p.minute(r.Changed),
			Current: r.Version == v.Shown, Latest: r.Version == h.Version, Changed: changed[r.Version],
		})
	}
	mode := p.query("as")
	if mode == "" && v.Since < 1 {
		mode = "whole"
	}
	for _, m := range []string{"diff", "whole", "filled"} {
		if m == "diff" && v.Since < 1 {
			continue
		}
		v.Modes = append(v.Modes, tab{Name: p.T("definition." + m), Address: p.with("as", m), Current: m == mode || m == "diff" && mode == ""})
	}
	if err := s.versionText(p, &v, mode); err != nil {
		return err
	}
	if v.CanDefine {
		if v.Followed, err = s.followerNames(p, name); err != nil {
			return err
		}
	}
	return p.show("definition", v)
}

// changedFields says of the last versions which fields differ from the version before. The audit knows it.
func (s *site) changedFields(p *page) (map[int64]string, error) {
	name := p.namedJob()
	list, err := s.Service.Audit.List(p.ctx(), p.who, client.AuditQuery{Namespace: name.Namespace, Object: name.String(), Action: "job", PageSize: auditPage})
	if err != nil {
		return nil, err
	}
	changed := make(map[int64]string, len(list.Items))
	for i := range list.Items {
		c := &list.Items[i]
		text := p.action(c.Action)
		if len(c.Changes) > 0 && c.Action != "job.create" {
			paths := make([]string, len(c.Changes))
			for n, f := range c.Changes {
				paths[n] = clean(f.Path)
			}
			text = strings.Join(paths, ", ")
		}
		changed[c.Version] = text
	}
	return changed, nil
}

// versionText reads what the page shows of a version.
func (s *site) versionText(p *page, v *definitionView, mode string) error {
	revision, err := s.Service.Jobs.Revision(p.ctx(), p.who, p.namedJob(), v.Shown, max(v.Since, 0))
	if err != nil {
		return err
	}
	v.By, v.At = clean(revision.Actor), p.minute(revision.Changed)
	document := revision.Job
	if v.YAML, err = yamlOf(document); err != nil {
		return err
	}
	switch mode {
	case "filled":
		if document, _, err = s.Service.Jobs.Get(p.ctx(), p.who, p.namedJob(), true); err != nil {
			return err
		}
	case "whole":
	default:
		v.Lines = diffLines(revision.Diff)
		return nil
	}
	text, err := yamlOf(document)
	if err != nil {
		return err
	}
	for _, line := range diffLines(text) {
		v.Text = append(v.Text, line.Text)
	}
	return nil
}
