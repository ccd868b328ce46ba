// Package account compares what a job was due for with its runs and records: each occurrence that a
// cursor has passed has one run or one record, and none started early. It reads
// nothing but the note with its findings.
package account

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Kind is a problem of an occurrence.
type Kind string

// The kinds of findings.
const (
	Unaccounted Kind = "unaccounted" // the occurrence has no run and no record
	Doubled     Kind = "doubled"     // two runs of the occurrence may have started
	Early       Kind = "early"       // a run of the occurrence started before it was due
)

// Kinds are all kinds.
var Kinds = [...]Kind{Unaccounted, Doubled, Early}

const (
	// Look is how far back occurrences are compared.
	Look = time.Hour
	// Settle is how long an occurrence must be due before it is compared: current steps end within
	// that time.
	Settle = 2 * time.Minute
	// EarlyMax is how much earlier than due an attempt may report its start: clocks of nodes may
	// differ by that much.
	EarlyMax = time.Second
	// OccurrencesMax bounds the occurrences of a job in one comparison: one each second.
	OccurrencesMax = int(Look / time.Second)
	// NoteName is the note with the findings.
	NoteName = "account/found"
	// KeptFor is how long a finding stays in the note.
	KeptFor = 24 * time.Hour
	// KeptMax is how many findings the note lists.
	KeptMax = 100
)

// Finding is an occurrence that is not as it must be.
type Finding struct {
	Kind      Kind          `json:"kind"`
	UID       job.ID        `json:"uid"`
	Job       string        `json:"job"` // its full name
	Epoch     int64         `json:"epoch"`
	Scheduled time.Time     `json:"scheduled"`
	Cursor    time.Time     `json:"cursor,omitzero"`
	Run       job.ID        `json:"run,omitzero"`
	Other     job.ID        `json:"other,omitzero"`
	By        time.Duration `json:"by,omitzero"` // how early it started
	Found     time.Time     `json:"found"`
}

// same reports whether two findings are about the same.
func (f *Finding) same(other *Finding) bool {
	return f.Kind == other.Kind && f.UID == other.UID && f.Scheduled.Equal(other.Scheduled) && f.Run == other.Run
}

// Reason describes the finding.
func (f *Finding) Reason() job.Reason {
	switch f.Kind {
	case Doubled:
		return reason.OccurredTwice.Of(f.Scheduled, f.Run, f.Other)
	case Early:
		return reason.BegunEarly.Of(f.Run, f.Scheduled, f.By)
	default:
		return reason.Unaccounted.Of(f.Scheduled, f.Cursor)
	}
}

// Book is the data about a job to compare.
type Book struct {
	Job      store.PlannedJob // as it was before the runs and records were read
	Name     string
	Schedule cron.Schedule
	// Since is when the epoch of the job had begun to plan; zero if unknown. All records since Whole
	// are kept and were read.
	Since, Whole time.Time
	Runs         []store.Run    // unfinished runs, read before the records
	Records      []store.Record // records of occurrences, ended since Whole
}

// Compare returns the problems at a moment.
func (b *Book) Compare(now time.Time) (found []Finding) {
	add := func(f Finding) {
		f.UID, f.Job, f.Epoch, f.Found = b.Job.UID, b.Name, b.Job.Epoch, now
		found = append(found, f)
	}
	type shard struct {
		at int64
		n  int
	}
	runs, there, since := map[shard]job.ID{}, map[int64]bool{}, b.Since
	see := func(r *job.Run) {
		there[r.Scheduled.UnixNano()] = true
		if r.Epoch == b.Job.Epoch && (since.IsZero() || r.Scheduled.Before(since)) {
			since = r.Scheduled
		}
	}
	count := func(r *job.Run) {
		key := shard{r.Scheduled.UnixNano(), r.Shard}
		if other, ok := runs[key]; ok && other != r.ID {
			add(Finding{Kind: Doubled, Scheduled: r.Scheduled, Run: r.ID, Other: other})
		}
		runs[key] = r.ID
	}
	for i := range b.Runs {
		if r := &b.Runs[i].Run; r.Kind == job.RunScheduled {
			see(r)
			if r.State == job.StateRunning || !b.Runs[i].First.IsZero() {
				count(r)
			}
		}
	}
	var spans []*store.Record
	for i := range b.Records {
		r := &b.Records[i]
		if r.Run.Kind != job.RunScheduled {
			continue
		}
		if !r.Until.IsZero() {
			spans = append(spans, r)
			continue
		}
		see(&r.Run)
		if !r.Attempt.Started.IsZero() && r.Attempt.Outcome != job.OutcomeWithdrawn {
			count(&r.Run)
			if by := r.Run.Due.Sub(r.Attempt.Started); r.Attempt.Number == 1 && by > EarlyMax {
				add(Finding{Kind: Early, Scheduled: r.Run.Scheduled, Run: r.Run.ID, By: by})
			}
		}
	}
	if !b.Job.Active || since.IsZero() {
		return found
	}
	from, until := latest(since, b.Whole, now.Add(-Look)), earliest(b.Job.Cursor, now.Add(-Settle))
	n := 0
	for at := range cron.Between(b.Schedule, from, until) {
		if n++; n > OccurrencesMax {
			break
		}
		covers := func(r *store.Record) bool { return !at.Before(r.Run.Scheduled) && !at.After(r.Until) }
		if !there[at.UnixNano()] && !slices.ContainsFunc(spans, covers) {
			add(Finding{Kind: Unaccounted, Scheduled: at, Cursor: b.Job.Cursor})
		}
	}
	return found
}

func latest(list ...time.Time) time.Time   { return slices.MaxFunc(list, time.Time.Compare) }
func earliest(list ...time.Time) time.Time { return slices.MinFunc(list, time.Time.Compare) }

// Read decodes the findings of a note, without expired ones.
func Read(text []byte, now time.Time) (list []Finding, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read the findings of %s: %w", NoteName, err)
	}
	return slices.DeleteFunc(list, func(f Finding) bool { return now.Sub(f.Found) > KeptFor }), nil
}

// NoteReader is the part of a store with the findings.
type NoteReader interface {
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
}

// NoteOf returns the note with the findings.
func NoteOf(ctx context.Context, s NoteReader) (store.Note, error) {
	notes, err := s.Notes(ctx, NoteName, "", 1)
	if err != nil || len(notes) == 0 || notes[0].Name != NoteName {
		return store.Note{Name: NoteName}, err
	}
	return notes[0], nil
}

// Found returns the findings of the last day.
func Found(ctx context.Context, s NoteReader, now time.Time) ([]Finding, error) {
	note, err := NoteOf(ctx, s)
	if err != nil {
		return nil, err
	}
	return Read(note.Text, now)
}

// Add adds findings to a note, and returns the text and the new findings. If there are too many the
// latest stay.
func Add(known, found []Finding) (text []byte, fresh []Finding, err error) {
	for i := range found {
		if !slices.ContainsFunc(known, func(f Finding) bool { return f.same(&found[i]) }) {
			known, fresh = append(known, found[i]), append(fresh, found[i])
		}
	}
	slices.SortStableFunc(known, func(a, b Finding) int { return cmp.Or(a.Found.Compare(b.Found), a.Scheduled.Compare(b.Scheduled)) })
	text, err = json.Marshal(known[max(0, len(known)-KeptMax):])
	return text, fresh, err
}
