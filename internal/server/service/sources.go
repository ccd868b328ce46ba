package service

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
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
	// sourceNotes begins the names of the notes about the sources of owners, fileNotes of those about the files of
	// their jobs, which are longer and read for single jobs, and otherNotes of those about their other documents.
	sourceNotes = "source/"
	fileNotes   = "source-files/"
	otherNotes  = "source-others/"
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

// sourced is what is known of the source of an owner: the commit that its jobs are of, the mistake of a later
// one, and why the repository is not reached.
type sourced struct {
	Owner      string    `json:"owner"`
	URL        string    `json:"url"`
	Branch     string    `json:"branch,omitempty"`
	Commit     string    `json:"commit,omitempty"`
	Namespaces []string  `json:"namespaces,omitempty"` // of its jobs, and of a caller of one namespace
	Wrong      string    `json:"wrong,omitempty"`      // the commit with a mistake
	Mistake    string    `json:"mistake,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Unreached  string    `json:"unreached,omitempty"`
	Away       time.Time `json:"away,omitzero"` // when it was said first

	stored int64
}

// sourceFile is the file of a job, and its version by the commit.
type sourceFile struct {
	File    string `json:"file,omitempty"`
	Version int64  `json:"version"`
}

// sourcedOthers are the documents of an owner other than jobs, by kind and name.
type sourcedOthers struct {
	Owner     string                  `json:"owner"`
	Documents map[string]sourcedOther `json:"documents"`
}

// sourcedOther is the file of a document, and what the commit says: stores keep no versions of it.
type sourcedOther struct {
	File string          `json:"file,omitempty"`
	Text json.RawMessage `json:"text,omitempty"`
}

func otherKey(d job.Document) string { return string(d.Kind) + " " + d.FullName() }

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
	if request.Source.Commit == "" && request.Source.Unreached == "" {
		return WrongField("source.commit", phrase.Missing)
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
func (d *Documents) changeSource(ctx context.Context, who Caller, owner string, from *client.Commit, change func(*sourced, time.Time) (action string, said phrase.Text)) error {
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
		action, said := change(&is, now)
		if before.URL == is.URL && before.Branch == is.Branch && before.Commit == is.Commit && before.Wrong == is.Wrong && before.Mistake == is.Mistake && before.Unreached == is.Unreached && slices.Equal(before.Namespaces, is.Namespaces) {
			return nil
		}
		text, err := json.Marshal(is)
		if err != nil {
			return err
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
		if err := cmp.Or(d.putOwned(ctx, fileNotes, is.Owner, nil), d.putOwned(ctx, otherNotes, is.Owner, nil)); err != nil {
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

// isToldOnly reports whether a request says something about its source, and no documents.
func isToldOnly(from *client.Commit) bool {
	return from.Mistake != "" || from.Unreached != "" || from.Reached
}

// told notes what a client says about its source: that it is not reached or again, or that its last commit has a
// mistake. The jobs stay as they are.
func (d *Documents) told(ctx context.Context, who Caller, request *client.Apply) error {
	if request.DryRun {
		return nil
	}
	from := request.Source
	return d.changeSource(ctx, who, request.Owner, from, func(is *sourced, now time.Time) (action string, said phrase.Text) {
		if only := who.only(); len(is.Namespaces) == 0 && only != "" {
			is.Namespaces = []string{only}
		}
		if from.Unreached != "" {
			if is.Unreached == "" {
				is.Away = now
			}
			is.Unreached = from.Unreached
			return "source.lose", phrase.Unreached.Of(from.URL, from.Unreached)
		}
		is.Unreached, is.Away = "", time.Time{}
		if from.Mistake == "" {
			return "source.reach", phrase.ReachedAgain.Of(from.URL)
		}
		if is.Mistake == "" {
			is.Since = now
		}
		is.Wrong, is.Mistake = from.Commit, from.Mistake
		return "source.refuse", phrase.CommitWrong.Of(shortHash(from.Commit), from.URL, from.Mistake)
	})
}

// appliedSource notes that the documents of an owner are of a commit.
func (d *Documents) appliedSource(ctx context.Context, who Caller, owner string, from *client.Commit, steps []*step) error {
	files, others := map[string]sourceFile{}, sourcedOthers{Owner: owner, Documents: map[string]sourcedOther{}}
	var namespaces []string
	for i, s := range steps {
		if s.result.Result == client.Deleted {
			continue
		}
		file := ""
		if i < len(from.Files) {
			file = from.Files[i]
		}
		if s.document.Job != nil {
			files[s.result.Name] = sourceFile{file, s.result.Version}
		} else {
			text, err := client.DocumentOf(s.document.Bare())
			if err != nil {
				return err
			}
			others.Documents[otherKey(s.document)] = sourcedOther{file, text.RawMessage}
		}
		if namespace, _, _ := strings.Cut(s.result.Name, "/"); !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	if err := cmp.Or(d.putOwned(ctx, fileNotes, owner, noteText(files, len(files))), d.putOwned(ctx, otherNotes, owner, others.text())); err != nil {
		return err
	}
	return d.changeSource(ctx, who, owner, from, func(is *sourced, _ time.Time) (action string, said phrase.Text) {
		is.Commit, is.Namespaces = from.Commit, namespaces
		is.Wrong, is.Mistake, is.Since = "", "", time.Time{}
		is.Unreached, is.Away = "", time.Time{}
		return "source.apply", phrase.CommitOf.Of(shortHash(from.Commit), from.URL)
	})
}

// noteText returns the text of a note about n documents, nil for none and if they are too many for a note.
func noteText(of any, n int) []byte {
	text, err := json.Marshal(of)
	if n == 0 || len(text) > store.NoteMax || err != nil {
		return nil
	}
	return text
}

// text returns the text of the note: without what documents say if they are too long, and then changes by hand are
// unknown.
func (o sourcedOthers) text() []byte {
	if text := noteText(o, len(o.Documents)); text != nil {
		return text
	}
	for key, of := range o.Documents {
		o.Documents[key] = sourcedOther{File: of.File}
	}
	return noteText(o, len(o.Documents))
}

// putOwned writes a note of an owner, nil to remove it, unless it is the same already.
func (d *Documents) putOwned(ctx context.Context, prefix, owner string, text []byte) error {
	name := noteOf(prefix, owner)
	for try := 1; ; try++ {
		notes, err := d.store.Notes(ctx, name, "", 1)
		if err != nil {
			return err
		}
		before := store.Note{Name: name}
		if len(notes) > 0 {
			before = notes[0]
		}
		if bytes.Equal(before.Text, text) {
			return nil
		}
		_, err = d.store.PutNote(ctx, store.Note{Name: name, Version: before.Version, Text: text})
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
	of, err := sourcesIn(ctx, s.store)
	if err != nil {
		return err
	}
	for _, j := range shown {
		if is := of[j.Labels[OwnerLabel]]; is.Commit != "" {
			j.Status.Source = &job.Source{URL: is.URL, Branch: is.Branch, Commit: is.Commit}
		}
	}
	return nil
}

// noteLister is the part of a store that lists notes.
type noteLister interface {
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
}

// sourcesIn returns all sources by owner.
func sourcesIn(ctx context.Context, s noteLister) (map[string]sourced, error) {
	notes, err := s.Notes(ctx, sourceNotes, "", sourcesMax)
	of := make(map[string]sourced, len(notes))
	for _, n := range notes {
		var is sourced
		if err := decodeNote(n, &is); err != nil {
			return nil, err
		}
		of[is.Owner] = is
	}
	return of, err
}

// withSources returns documents other than jobs with the commits that they are of.
func withSources(ctx context.Context, s noteLister, list []job.Document) ([]job.Document, error) {
	if len(list) == 0 {
		return list, nil
	}
	notes, err := s.Notes(ctx, otherNotes, "", sourcesMax)
	if err != nil || len(notes) == 0 {
		return list, err
	}
	of, err := sourcesIn(ctx, s)
	if err != nil {
		return nil, err
	}
	shown := slices.Clone(list)
	for _, n := range notes {
		var others sourcedOthers
		if err := decodeNote(n, &others); err != nil {
			return nil, err
		}
		is := of[others.Owner]
		for i, d := range list {
			said, known := others.Documents[otherKey(d)]
			if before := shown[i].From(); !known || is.Commit == "" || before != nil && !before.Edited {
				continue
			}
			from := &job.Source{URL: is.URL, Branch: is.Branch, Commit: is.Commit, File: said.File}
			if err := compareWith(from, said.Text, d); err != nil {
				return nil, err
			}
			shown[i] = d.CameFrom(from)
		}
	}
	return shown, nil
}

// compareWith adds to a source whether and how a document differs from what the commit says.
func compareWith(from *job.Source, said json.RawMessage, d job.Document) error {
	if said == nil {
		return nil
	}
	was, err := ReadDraft(said, "")
	if err != nil {
		return err
	}
	if from.Edited = !job.Same(was.Document, d); from.Edited {
		from.Diff, err = difference(shortHash(from.Commit), was.Document, versioned(d.FullName(), d.Version()), d)
	}
	return err
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
	var changed []*step
	var others []job.Document // of these, other than jobs
	for _, s := range steps {
		switch {
		case s.result.Result != client.Changed:
			continue
		case s.document.Job == nil:
			others = append(others, s.document)
		case s.document.Job.Labels[OwnerLabel] == "":
			continue
		}
		changed = append(changed, s)
	}
	if len(changed) == 0 {
		return nil
	}
	others, err := withSources(ctx, d.store, others)
	if err != nil {
		return err
	}
	of, err := sourcesIn(ctx, d.store)
	if err != nil {
		return err
	}
	for _, s := range changed {
		var from job.Source
		if j := s.document.Job; j != nil {
			is := of[j.Labels[OwnerLabel]]
			from.URL, from.Commit = is.URL, is.Commit
		} else {
			if is := others[0].From(); is != nil && is.Edited {
				from = *is
			}
			others = others[1:]
		}
		if from.Commit != "" {
			s.result.Warnings = append(s.result.Warnings, phrase.SourceSetsBack.Of(from.URL, shortHash(from.Commit)).String())
		}
	}
	return nil
}

// wrongSources returns the sources that are not reached, or whose last commit was not applied.
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
		if is.Mistake != "" || is.Unreached != "" {
			list = append(list, is)
		}
	}
	return list, nil
}

// problem says since when what is wrong with the source. While it is not reached, no later commit can mend a mistake.
func (is *sourced) problem() (since time.Time, why phrase.Text) {
	switch {
	case is.Unreached != "" && is.Commit == "":
		return is.Away, phrase.Unreached.Of(is.URL, is.Unreached)
	case is.Unreached != "":
		return is.Away, phrase.UnreachedStays.Of(is.URL, shortHash(is.Commit), is.Unreached)
	case is.Commit == "":
		return is.Since, phrase.CommitWrong.Of(shortHash(is.Wrong), is.URL, is.Mistake)
	}
	return is.Since, phrase.CommitStays.Of(shortHash(is.Wrong), is.URL, shortHash(is.Commit), is.Mistake)
}

// ofSources finds sources that are not reached, or whose last commit was not applied.
func (s *Attention) ofSources(ctx context.Context, of scope) (list []client.Attention, err error) {
	sources, err := s.wrongSources(ctx)
	for i := range sources {
		if is := &sources[i]; of == nil || slices.ContainsFunc(is.Namespaces, of.has) {
			since, why := is.problem()
			list = append(list, saying(client.Attention{Kind: client.AttentionSource, Severity: client.SeverityBad, Source: is.Owner, Since: since}, reason.Say(why)))
		}
	}
	return list, err
}
