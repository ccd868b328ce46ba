package service

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// markNotes begins the names of the notes that have marks.
	markNotes = "attention/"
	// marksMax is the most marks: they are read with each list of problems.
	marksMax = 500
	// markTries is how often a change of a mark is repeated while other people change it.
	markTries = 5
	// markStays is how long a mark stays whose problem is over: the problem may come back.
	markStays = 24 * time.Hour
	// markNoteMax is the longest note of a person, in bytes.
	markNoteMax = 1024
)

// markStore is the part of a store that marks use.
type markStore interface {
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
	PutNote(ctx context.Context, n store.Note) (int64, error)
	PutAudited(ctx context.Context, n store.AuditedNote) error
}

// mark is what people have said about the problems of a job, a node or the channels.
type mark struct {
	Subject string                          `json:"subject"`
	Changed time.Time                       `json:"changed"`
	Taken   remark                          `json:"taken,omitzero"`
	Note    remark                          `json:"note,omitzero"`
	Snooze  *client.Snooze                  `json:"snooze,omitempty"`
	Version int64                           `json:"version,omitempty"` // of the job, when it was snoozed
	Causes  map[client.AttentionKind]string `json:"causes,omitempty"`  // of the problems that were snoozed

	stored int64
}

// remark is what a person has said.
type remark struct {
	By   string    `json:"by"`
	At   time.Time `json:"at"`
	Text string    `json:"text,omitempty"`
}

// subjectOf names what a problem is about.
func subjectOf(a *client.Attention) string {
	switch {
	case a.Kind == client.AttentionAlarms:
		return "channels"
	case a.Kind == client.AttentionSource:
		return "source " + a.Source
	case a.Job != "":
		return "job " + a.Job
	}
	return "node " + a.Node
}

// causeOf returns the fingerprint of the cause of a problem or, without one, its text without numbers, which
// differ from run to run.
func causeOf(a *client.Attention) string {
	if a.CauseFingerprint != "" {
		return a.CauseFingerprint
	}
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, a.Text)
}

func markName(subject string) string {
	sum := sha256.Sum256([]byte(subject))
	return markNotes + hex.EncodeToString(sum[:16])
}

// marks returns the marks by subject.
func (s *Attention) marks(ctx context.Context) (map[string]*mark, error) {
	notes, err := s.store.Notes(ctx, markNotes, "", marksMax)
	if err != nil {
		return nil, err
	}
	marks := make(map[string]*mark, len(notes))
	for _, n := range notes {
		m := &mark{stored: n.Version}
		if err := decodeNote(n, m); err != nil {
			return nil, err
		}
		marks[m.Subject] = m
	}
	return marks, nil
}

// marked adds to problems what people have said about them.
func (s *Attention) marked(ctx context.Context, list []client.Attention, now time.Time) error {
	marks, err := s.marks(ctx)
	if err != nil || len(marks) == 0 {
		return err
	}
	versions, err := s.versions(ctx, list, marks)
	if err != nil {
		return err
	}
	for i := range list {
		a := &list[i]
		m := marks[subjectOf(a)]
		if m == nil {
			continue
		}
		if !a.Since.After(m.Taken.At) { // a later problem is another one
			a.TakenBy = m.Taken.By
		}
		if !a.Since.After(m.Note.At) {
			a.Note, a.NoteBy = m.Note.Text, m.Note.By
		}
		if m.snoozes(a, versions[a.Job], now) {
			a.Snoozed = m.Snooze
		}
	}
	return nil
}

// snoozes reports whether a problem is snoozed, of a job with a version.
func (m *mark) snoozes(a *client.Attention, version int64, now time.Time) bool {
	z, cause := m.Snooze, m.Causes[a.Kind]
	return z != nil && cause != "" && (z.Until.IsZero() || now.Before(z.Until)) && (!z.NextVersion || version == m.Version) &&
		(!z.AnotherCause || causeOf(a) == cause)
}

// versions returns the versions of jobs that are snoozed until the next one.
func (s *Attention) versions(ctx context.Context, list []client.Attention, marks map[string]*mark) (map[string]int64, error) {
	versions := map[string]int64{}
	var names []string
	for i := range list {
		if m := marks[subjectOf(&list[i])]; m != nil && m.Snooze != nil && m.Snooze.NextVersion {
			names = append(names, list[i].Job)
		}
	}
	if len(names) == 0 {
		return versions, nil
	}
	jobs, err := s.jobs.store.JobsNamed(ctx, names[:min(len(names), store.MaxBatch)])
	for _, j := range jobs {
		if j != nil {
			versions[j.Definition.FullName()] = j.Definition.Version
		}
	}
	return versions, err
}

// Snooze puts the present problems of a job, a node or the channels aside, until a time, the next version
// of the job or another cause. They come back alone.
func (s *Attention) Snooze(ctx context.Context, who Caller, r client.AttentionRequest) ([]client.Attention, error) {
	if err := who.May(Operate); err != nil {
		return nil, err
	}
	z := client.Snooze{By: who.Name, Until: r.Until.UTC(), NextVersion: r.NextVersion, AnotherCause: r.AnotherCause}
	switch {
	case r.Until.IsZero() && !r.NextVersion && !r.AnotherCause:
		return nil, WrongParameter("until", phrase.Missing, phrase.SnoozeUntil)
	case r.NextVersion && r.Job == "":
		return nil, WrongParameter("next_version", phrase.NeedsJob, phrase.OnlyJobsVersions)
	}
	return s.change(ctx, who, r, "snooze", func(m *mark, found []*client.Attention, version int64, now time.Time) error {
		if !z.Until.IsZero() && !z.Until.After(now) {
			return WrongParameter("until", phrase.NotInFuture)
		}
		z.At = now
		m.Snooze, m.Version, m.Causes = &z, version, map[client.AttentionKind]string{}
		for _, a := range found {
			m.Causes[a.Kind] = cmp.Or(causeOf(a), string(a.Kind))
		}
		return nil
	})
}

// Wake ends a snooze.
func (s *Attention) Wake(ctx context.Context, who Caller, r client.AttentionRequest) ([]client.Attention, error) {
	return s.change(ctx, who, r, "wake", func(m *mark, _ []*client.Attention, _ int64, _ time.Time) error {
		m.Snooze, m.Version, m.Causes = nil, 0, nil
		return nil
	})
}

// Take says that the caller looks after a problem, and Release that no one does.
func (s *Attention) Take(ctx context.Context, who Caller, r client.AttentionRequest) ([]client.Attention, error) {
	return s.change(ctx, who, r, "take", func(m *mark, _ []*client.Attention, _ int64, now time.Time) error {
		m.Taken = remark{By: who.Name, At: now}
		return nil
	})
}

// Release takes back what Take says.
func (s *Attention) Release(ctx context.Context, who Caller, r client.AttentionRequest) ([]client.Attention, error) {
	return s.change(ctx, who, r, "release", func(m *mark, _ []*client.Attention, _ int64, _ time.Time) error {
		m.Taken = remark{}
		return nil
	})
}

// Note writes a note for others at a problem. An empty one removes it.
func (s *Attention) Note(ctx context.Context, who Caller, r client.AttentionRequest) ([]client.Attention, error) {
	return s.change(ctx, who, r, "note", func(*mark, []*client.Attention, int64, time.Time) error { return nil })
}

// change changes the mark of a subject, and returns its problems.
func (s *Attention) change(ctx context.Context, who Caller, r client.AttentionRequest, verb string, apply func(m *mark, found []*client.Attention, version int64, now time.Time) error) ([]client.Attention, error) {
	if err := who.May(Operate); err != nil {
		return nil, err
	}
	subject, object, err := s.subject(who, r)
	if err != nil {
		return nil, err
	}
	if len(r.Note) > markNoteMax {
		return nil, WrongParameter("note", phrase.HasBytes.Of(len(r.Note), markNoteMax))
	}
	for try := 1; ; try++ {
		list, err := s.List(ctx, who, "")
		if err != nil {
			return nil, err
		}
		now, err := s.jobs.store.Now(ctx)
		if err != nil {
			return nil, err
		}
		var found []*client.Attention
		present := map[string]bool{}
		for i := range list {
			present[subjectOf(&list[i])] = true
			if subjectOf(&list[i]) == subject {
				found = append(found, &list[i])
			}
		}
		if len(found) == 0 {
			return nil, Refuse(client.TypeNotFound, phrase.NoProblemOf.Of(object))
		}
		err = s.put(ctx, who, subject, object, verb, present, now, func(m *mark) error {
			version := int64(0)
			if r.NextVersion {
				namespace, name, _ := strings.Cut(r.Job, "/")
				j, err := store.JobNamed(ctx, s.jobs.store, namespace, name)
				if err != nil {
					return err
				}
				version = j.Definition.Version
			}
			if r.Note != "" || verb == "note" {
				m.Note = remark{By: who.Name, At: now, Text: strings.TrimSpace(r.Note)}
				if m.Note.Text == "" {
					m.Note = remark{}
				}
			}
			return apply(m, found, version, now)
		})
		if err == nil {
			return s.of(ctx, who, subject)
		}
		if !errors.Is(err, store.ErrConflict) || try == markTries {
			return nil, err
		}
	}
}

// of returns the problems of a subject.
func (s *Attention) of(ctx context.Context, who Caller, subject string) ([]client.Attention, error) {
	list, err := s.List(ctx, who, "")
	found := []client.Attention{}
	for i := range list {
		if subjectOf(&list[i]) == subject {
			found = append(found, list[i])
		}
	}
	return found, err
}

// subject checks what a request is about, and returns it with its name in the audit.
func (s *Attention) subject(who Caller, r client.AttentionRequest) (subject, object string, err error) {
	named := 0
	for _, is := range []bool{r.Job != "", r.Node != "", r.Channels, r.Source != ""} {
		if is {
			named++
		}
	}
	switch {
	case named != 1:
	case r.Job != "":
		namespace, _, found := strings.Cut(r.Job, "/")
		if !found {
			return "", "", WrongParameter("job", phrase.NotFullName)
		}
		return "job " + r.Job, r.Job, who.MayIn(Operate, namespace)
	case r.Node != "":
		return "node " + r.Node, r.Node, who.MayIn(Operate, "")
	case r.Channels:
		return "channels", "channels", who.MayIn(Operate, "")
	default:
		return "source " + r.Source, r.Source, who.MayIn(Operate, "")
	}
	return "", "", WrongParameter("job", phrase.Missing, phrase.OneSubject)
}

// put writes the mark of a subject after a change, and removes marks whose problem is over.
func (s *Attention) put(ctx context.Context, who Caller, subject, object, verb string, present map[string]bool, now time.Time, change func(*mark) error) error {
	marks, err := s.marks(ctx)
	if err != nil {
		return err
	}
	m := marks[subject]
	if m == nil {
		m = &mark{Subject: subject}
	}
	if err := change(m); err != nil {
		return err
	}
	for other, old := range marks {
		if !present[other] && now.Sub(old.Changed) > markStays && (old.Snooze == nil || !old.Snooze.Until.After(now)) && who.Everywhere(Read) {
			if _, err := s.store.PutNote(ctx, store.Note{Name: markName(other), Version: old.stored}); err != nil && !errors.Is(err, store.ErrConflict) {
				return err
			}
			delete(marks, other)
		}
	}
	if len(marks) >= marksMax && m.stored == 0 {
		return Refuse(client.TypeConflict, phrase.MarksFull.Of(marksMax))
	}
	m.Changed = now
	note := store.Note{Name: markName(subject), Version: m.stored}
	if m.Snooze != nil || m.Taken.By != "" || m.Note.By != "" {
		if note.Text, err = json.Marshal(m); err != nil {
			return err
		}
	} else if m.stored == 0 {
		return nil // there was nothing to take back
	}
	record := store.AuditRecord{Actor: who.Name, Action: "attention." + verb, Object: object}
	if m.Note.Text != "" && m.Note.At.Equal(now) {
		record.Detail = job.Text(m.Note.Text)
	}
	return s.store.PutAudited(ctx, store.AuditedNote{Note: note, Audit: record})
}
