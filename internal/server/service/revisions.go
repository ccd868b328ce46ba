package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// revisionStore is the part of a store that the versions of jobs use.
type revisionStore interface {
	Revisions(ctx context.Context, uid job.ID, beforeVersion int64, limit int) ([]store.Revision, error)
}

// revisionsPlace is where a page of revisions ended.
type revisionsPlace struct {
	Version int64 `json:"version"`
}

// Revisions returns a page of the versions of a job, the latest first.
func (s *Jobs) Revisions(ctx context.Context, who Caller, name Name, size int, token string) (client.Page[client.Revision], error) {
	page := client.Page[client.Revision]{Items: []client.Revision{}}
	j, err := s.find(ctx, who, Read, name)
	if err != nil {
		return page, err
	}
	var place revisionsPlace
	if err := readToken(token, &place); err != nil {
		return page, err
	}
	size = pageSize(size)
	list, err := s.revisions.Revisions(ctx, j.Definition.UID, place.Version, size+1)
	if err != nil {
		return page, err
	}
	if len(list) > size {
		list = list[:size]
		page.NextPageToken = writeToken(revisionsPlace{list[len(list)-1].Version})
	}
	for _, r := range list {
		page.Items = append(page.Items, client.Revision{Version: r.Version, Changed: r.Changed, Actor: r.Actor})
	}
	return page, nil
}

// Revision returns a version of a job and, unless since is 0, its difference from that
// version.
func (s *Jobs) Revision(ctx context.Context, who Caller, name Name, version, since int64) (client.Revision, error) {
	j, err := s.find(ctx, who, Read, name)
	if err != nil {
		return client.Revision{}, err
	}
	r, err := s.revision(ctx, j, version)
	if err != nil {
		return client.Revision{}, err
	}
	out := client.Revision{Version: r.Version, Changed: r.Changed, Actor: r.Actor}
	if out.Job, err = client.DocumentOf(job.Document{Job: r.Definition}); err != nil || since <= 0 {
		return out, err
	}
	before, err := s.revision(ctx, j, since)
	if err != nil {
		return client.Revision{}, err
	}
	out.Diff, err = difference(
		versioned(name.String(), before.Version), job.Document{Job: before.Definition},
		versioned(name.String(), r.Version), job.Document{Job: r.Definition},
	)
	return out, err
}

// Changes returns the fields in which a version of a job differs from an earlier one; none if that is
// not kept, or much older.
func (s *Jobs) Changes(ctx context.Context, who Caller, name Name, uid job.ID, version, since int64) ([]client.FieldChange, error) {
	if err := who.MayIn(Read, name.Namespace); err != nil {
		return nil, err
	}
	list, err := s.revisions.Revisions(ctx, uid, version+1, int(min(version-since+1, changesSpan)))
	if err != nil {
		return nil, err
	}
	// Versions without a definition of their own have the previous one's.
	at := slices.IndexFunc(list, func(r store.Revision) bool { return r.Version <= since })
	if at < 0 {
		return nil, nil
	}
	var changes []client.FieldChange
	for _, c := range engine.Differences(list[at].Definition, list[0].Definition) {
		changes = append(changes, client.FieldChange(c))
	}
	return changes, nil
}

// changesSpan bounds the versions that are read for their difference: each is a document.
const changesSpan = 20

// revision reads a version of a job.
func (s *Jobs) revision(ctx context.Context, j *store.Job, version int64) (store.Revision, error) {
	list, err := s.revisions.Revisions(ctx, j.Definition.UID, version+1, 1)
	if err != nil {
		return store.Revision{}, err
	}
	if len(list) == 0 || list[0].Version != version {
		hint := phrase.LatestVersion.Of(int(j.Definition.Version))
		if version < j.Definition.Version {
			hint = phrase.OldVersionsGo
		}
		return store.Revision{}, Refuse(client.TypeNotFound, phrase.NoSuchVersion.Of(int(version), j.Definition.FullName()), hint)
	}
	return list[0], nil
}

// Rollback restores an earlier version of a job, as a new version. A pause stays: it was
// set manually, for a reason of its own.
func (s *Jobs) Rollback(ctx context.Context, who Caller, name Name, version int64, expect Expect) (Changed, error) {
	j, err := s.find(ctx, who, Define, name)
	if err != nil {
		return Changed{}, err
	}
	r, err := s.revision(ctx, j, version)
	if err != nil {
		return Changed{}, err
	}
	if err := s.mayWriteAgain(ctx, who, name, r.Definition, r.Version); err != nil {
		return Changed{}, err
	}
	return s.edit(ctx, who, name, expect, func(now *job.Job, _ *store.PutJob) {
		paused := now.Paused
		*now = *r.Definition
		now.Paused = paused
	})
}

// mayWriteAgain refuses an earlier definition that the caller may not write, or that is wrong by now.
func (s *Jobs) mayWriteAgain(ctx context.Context, who Caller, name Name, definition *job.Job, version int64) error {
	d := job.Document{Kind: job.KindJob, Job: definition}
	if err := who.mayName(Define, d, ""); err != nil {
		return err
	}
	rules, err := s.rules.present(ctx, &d)
	if err != nil {
		return err
	}
	err = check(d, rules)
	var mistakes job.Problems
	if errors.As(err, &mistakes) {
		e := invalid(mistakes, "")
		e.Detail = reason.Say(phrase.VersionWrong.Of(name.String(), int(version)))
		for i := range e.Errors {
			e.Errors[i].Pointer = "" // it is not in the request
		}
		return e
	}
	return err
}

// nowhere is the name of a document that is missing before a change, or after it.
const nowhere = "/dev/null"

// versioned names a version of a document.
func versioned(name string, version int64) string {
	return fmt.Sprintf("%s version %d", name, version)
}

// difference returns the lines that differ between two documents, or "" if they say the
// same. A missing document has no lines.
func difference(oldName string, old job.Document, newName string, new job.Document) (string, error) {
	var texts [2]bytes.Buffer
	for i, d := range [...]job.Document{old, new} {
		if d.FullName() == "" {
			continue
		}
		d = d.Bare()
		d.PutIn(job.DefaultNamespace)
		if err := job.Encode(&texts[i], []job.Document{d}, job.YAML); err != nil {
			return "", err
		}
	}
	// The first line repeats the two below it.
	_, text, _ := bytes.Cut(diff.Diff(oldName, texts[0].Bytes(), newName, texts[1].Bytes()), []byte("\n"))
	return string(text), nil
}
