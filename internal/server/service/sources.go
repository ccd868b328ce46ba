package service

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// sourceNotes begins the names of the notes about the sources of owners, and fileNotes of those about the
	// files of their jobs, which are longer and read for single jobs.
	sourceNotes = "source/"
	fileNotes   = "source-files/"
	// sourcesMax is the most sources: they are read with each list of problems.
	sourcesMax = 200
	// sourceTries is how often a change of a source is repeated while other requests change it.
	sourceTries = 5
)

// sourceStore is the part of a store that keeps sources.
type sourceStore interface {
	Now(ctx context.Context) (time.Time, error)
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
	PutNote(ctx context.Context, n store.Note) (int64, error)
	PutAudited(ctx context.Context, n store.AuditedNote) error
}

// sourced is what is known of the source of an owner: the commit that its jobs are of, and the mistake of a later
// one.
type sourced struct {
	Owner      string    `json:"owner"`
	URL        string    `json:"url"`
	Branch     string    `json:"branch,omitempty"`
	Commit     string    `json:"commit,omitempty"`
	Namespaces []string  `json:"namespaces,omitempty"` // of its jobs, and of a caller of one namespace
	Wrong      string    `json:"wrong,omitempty"`      // the commit with a mistake
	Mistake    string    `json:"mistake,omitempty"`
	Since      time.Time `json:"since,omitzero"`

	stored int64
}

// sourceFile is the file of a job, and its version by the commit.
type sourceFile struct {
	File    string `json:"file,omitempty"`
	Version int64  `json:"version"`
}

// noteOf returns the name of the note of an owner, whose name may have any characters.
func noteOf(prefix, owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return prefix + hex.EncodeToString(sum[:16])
}

// noted reads the note of an owner, and reports its version, 0 for none.
func noted(ctx context.Context, s sourceStore, prefix, owner string, into any) (version int64, err error) {
	name := noteOf(prefix, owner)
	notes, err := s.Notes(ctx, name, "", 1)
	if err != nil || len(notes) == 0 {
		return 0, err
	}
	return notes[0].Version, decodeNote(notes[0], into)
}

// refuse refuses a caller that may not define the jobs of the source.
func (is *sourced) refuse(who Caller) error {
	for _, namespace := range is.Namespaces {
		if err := who.MayIn(Define, namespace); err != nil {
			return err
		}
	}
	return nil
}

// checkSource refuses a source that cannot be, or is not the caller's, before anything is written.
func (d *Documents) checkSource(ctx context.Context, who Caller, request *client.Apply) error {
	if request.Owner == "" {
		return WrongField("owner", phrase.Missing, phrase.SourceNeedsOwner)
	}
	if n := len(request.Source.Files); n > 0 && n != len(request.Documents) {
		return WrongField("source.files", phrase.FilesOfDocuments.Of(n, len(request.Documents)))
	}
	if request.DryRun {
		return nil
	}
	var is sourced
	version, err := noted(ctx, d.store, sourceNotes, request.Owner, &is)
	if err == nil && version == 0 {
		err = d.makeRoom(ctx)
	}
	return cmp.Or(err, is.refuse(who))
}

// changeSource changes what is known of the source of an owner, and writes the change to the audit.
func (d *Documents) changeSource(ctx context.Context, who Caller, owner string, from *client.Commit, change func(*sourced, time.Time) (action string)) error {
	s := d.store
	for try := 1; ; try++ {
		now, err := s.Now(ctx)
		if err != nil {
			return err
		}
		is := sourced{Owner: owner}
		if is.stored, err = noted(ctx, s, sourceNotes, owner, &is); err != nil {
			return err
		}
		if err := is.refuse(who); err != nil {
			return err
		}
		before := is
		is.URL, is.Branch = from.URL, from.Branch
		action := change(&is, now)
		if before.URL == is.URL && before.Branch == is.Branch && before.Commit == is.Commit && before.Wrong == is.Wrong && before.Mistake == is.Mistake && slices.Equal(before.Namespaces, is.Namespaces) {
			return nil
		}
		text, err := json.Marshal(is)
		if err != nil {
			return err
		}
		said := phrase.CommitOf.Of(shortHash(from.Commit), from.URL)
		if from.Mistake != "" {
			said = phrase.CommitWrong.Of(shortHash(from.Commit), from.URL, from.Mistake)
		}
		err = s.PutAudited(ctx, store.AuditedNote{
			Note:  store.Note{Name: noteOf(sourceNotes, owner), Version: is.stored, Text: text},
			Audit: store.AuditRecord{Actor: who.Name, Action: action, Object: owner, Detail: reason.Say(said)},
		})
		if !errors.Is(err, store.ErrConflict) || try == sourceTries {
			return err
		}
	}
}

// makeRoom forgets sources whose owners have no jobs if there are as many as may be.
func (d *Documents) makeRoom(ctx context.Context) error {
	all, err := d.store.Notes(ctx, sourceNotes, "", sourcesMax)
	if err != nil || len(all) < sourcesMax {
		return err
	}
	forgotten := 0
	for _, n := range all {
		var is sourced
		if err := decodeNote(n, &is); err != nil {
			return err
		}
		jobs, _, err := d.store.ListJobs(ctx, store.JobQuery{Labels: map[string]string{OwnerLabel: is.Owner}, Limit: 1})
		if err != nil {
			return err
		}
		if len(jobs) > 0 {
			continue
		}
		if err := d.putFiles(ctx, is.Owner, nil); err != nil {
			return err
		}
		if _, err := d.store.PutNote(ctx, store.Note{Name: n.Name, Version: n.Version}); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
		forgotten++
	}
	if forgotten == 0 {
		return Refuse(client.TypeConflict, phrase.SourcesFull.Of(sourcesMax))
	}
	return nil
}

func shortHash(hash string) string { return hash[:min(len(hash), 7)] }

// mistaken notes that a commit has a mistake, and the jobs stay as they are.
func (d *Documents) mistaken(ctx context.Context, who Caller, request *client.Apply) error {
	if request.DryRun {
		return nil
	}
	return d.changeSource(ctx, who, request.Owner, request.Source, func(is *sourced, now time.Time) string {
		if is.Mistake == "" {
			is.Since = now
		}
		if only := who.only(); len(is.Namespaces) == 0 && only != "" {
			is.Namespaces = []string{only}
		}
		is.Wrong, is.Mistake = request.Source.Commit, request.Source.Mistake
		return "source.refuse"
	})
}

// appliedSource notes that the jobs of an owner are of a commit.
func (d *Documents) appliedSource(ctx context.Context, who Caller, owner string, from *client.Commit, steps []*step) error {
	files := map[string]sourceFile{}
	var namespaces []string
	for i, s := range steps {
		if s.document.Job == nil {
			continue // deleted jobs have none either
		}
		of := sourceFile{Version: s.result.Version}
		if i < len(from.Files) {
			of.File = from.Files[i]
		}
		files[s.result.Name] = of
		if namespace, _, _ := strings.Cut(s.result.Name, "/"); !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	if err := d.putFiles(ctx, owner, files); err != nil {
		return err
	}
	return d.changeSource(ctx, who, owner, from, func(is *sourced, _ time.Time) string {
		is.Commit, is.Namespaces = from.Commit, namespaces
		is.Wrong, is.Mistake, is.Since = "", "", time.Time{}
		return "source.apply"
	})
}

// putFiles writes which files the jobs of an owner are of. If there are too many for a note, their files are unknown.
func (d *Documents) putFiles(ctx context.Context, owner string, files map[string]sourceFile) error {
	for try := 1; ; try++ {
		var before map[string]sourceFile
		version, err := noted(ctx, d.store, fileNotes, owner, &before)
		if err != nil {
			return err
		}
		if version > 0 && maps.Equal(before, files) {
			return nil
		}
		text, err := json.Marshal(files)
		if err != nil {
			return err
		}
		if len(files) == 0 || len(text) > store.NoteMax {
			text = nil // none
		}
		if text == nil && version == 0 {
			return nil
		}
		_, err = d.store.PutNote(ctx, store.Note{Name: noteOf(fileNotes, owner), Version: version, Text: text})
		if !errors.Is(err, store.ErrConflict) || try == sourceTries {
			return err
		}
	}
}

// sourceOf returns where a job comes from, nil if that is no repository.
func (s *Jobs) sourceOf(ctx context.Context, j *store.Job) (*job.Source, error) {
	owner := j.Definition.Labels[OwnerLabel]
	if owner == "" {
		return nil, nil
	}
	var is sourced
	if version, err := noted(ctx, s.store, sourceNotes, owner, &is); err != nil || version == 0 || is.Commit == "" {
		return nil, err
	}
	var files map[string]sourceFile
	if _, err := noted(ctx, s.store, fileNotes, owner, &files); err != nil {
		return nil, err
	}
	of, known := files[j.Definition.FullName()]
	from := &job.Source{URL: is.URL, Branch: is.Branch, Commit: is.Commit, File: of.File, Version: of.Version}
	if !known || of.Version == j.Definition.Version {
		return from, nil
	}
	was, err := s.revision(ctx, j, of.Version)
	var e *Error
	if errors.As(err, &e) {
		from.Edited = true // so often that the version is gone
		return from, nil
	}
	if err != nil {
		return nil, err
	}
	old := *was.Definition
	old.Paused = j.Definition.Paused // files do not undo a manual pause
	from.Edited = !job.Same(job.Document{Job: &old}, job.Document{Job: j.Definition})
	return from, nil
}

// showSources adds to shown jobs which commits they are of, without files and changes by hand, which are read for
// single jobs.
func (s *Jobs) showSources(ctx context.Context, shown []*job.Job) error {
	if !slices.ContainsFunc(shown, func(j *job.Job) bool { return j.Labels[OwnerLabel] != "" }) {
		return nil
	}
	notes, err := s.store.Notes(ctx, sourceNotes, "", sourcesMax)
	if err != nil {
		return err
	}
	of := make(map[string]sourced, len(notes))
	for _, n := range notes {
		var is sourced
		if err := decodeNote(n, &is); err != nil {
			return err
		}
		of[is.Owner] = is
	}
	for _, j := range shown {
		if is := of[j.Labels[OwnerLabel]]; is.Commit != "" {
			j.Status.Source = &job.Source{URL: is.URL, Branch: is.Branch, Commit: is.Commit}
		}
	}
	return nil
}

// warnOfSource warns of a change by hand of a job that the next commit sets back.
func (s *Jobs) warnOfSource(ctx context.Context, j *store.Job) ([]string, error) {
	from, err := s.sourceOf(ctx, j)
	if err != nil || from == nil || !from.Edited {
		return nil, err
	}
	return []string{phrase.SourceSetsBack.Of(from.URL, shortHash(from.Commit)).String()}, nil
}

// warnOfSources warns of changes that the next commit of a repository sets back.
func (d *Documents) warnOfSources(ctx context.Context, steps []*step) error {
	known := map[string]*sourced{}
	for _, s := range steps {
		if s.result.Result != client.Changed || s.document.Job == nil || s.document.Job.Labels[OwnerLabel] == "" {
			continue
		}
		owner := s.document.Job.Labels[OwnerLabel]
		is := known[owner]
		if is == nil {
			is = &sourced{}
			known[owner] = is
			if _, err := noted(ctx, d.store, sourceNotes, owner, is); err != nil {
				return err
			}
		}
		if is.Commit != "" {
			s.result.Warnings = append(s.result.Warnings, phrase.SourceSetsBack.Of(is.URL, shortHash(is.Commit)).String())
		}
	}
	return nil
}

// wrongSources returns the sources whose last commit was not applied.
func (s *Attention) wrongSources(ctx context.Context) (list []sourced, err error) {
	notes, err := s.store.Notes(ctx, sourceNotes, "", sourcesMax)
	if err != nil {
		return nil, err
	}
	for _, n := range notes {
		var is sourced
		if err := decodeNote(n, &is); err != nil {
			return nil, err
		}
		if is.Mistake != "" {
			list = append(list, is)
		}
	}
	return list, nil
}

// why says what is wrong with the last commit.
func (is *sourced) why() phrase.Text {
	if is.Commit == "" {
		return phrase.CommitWrong.Of(shortHash(is.Wrong), is.URL, is.Mistake)
	}
	return phrase.CommitStays.Of(shortHash(is.Wrong), is.URL, shortHash(is.Commit), is.Mistake)
}

// ofSources finds sources whose last commit was not applied.
func (s *Attention) ofSources(ctx context.Context, of scope) (list []client.Attention, err error) {
	sources, err := s.wrongSources(ctx)
	for i := range sources {
		if is := &sources[i]; of == nil || slices.ContainsFunc(is.Namespaces, of.has) {
			list = append(list, saying(client.Attention{Kind: client.AttentionSource, Severity: client.SeverityBad, Source: is.Owner, Since: is.Since}, reason.Say(is.why())))
		}
	}
	return list, err
}
