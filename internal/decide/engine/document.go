package engine

import (
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Document is a version of a job with the values derived from it. Steps share it, so it is
// immutable.
type Document struct {
	// Definition is the user's definition, and Filled the same with all defaults. Neither
	// has a uid, version, epoch or status.
	Definition, Filled *job.Job
	Policy             *Policy
	// Text is the definition as encoded by a store; nil for a version that a decision has made.
	Text []byte
	// Timing determines when the job is due, as [TimingText] writes it. Calendars are the
	// full names of the calendars in it.
	Timing    string
	Calendars []string
	// Actor created this version, which is new if a step created the document.
	Actor string

	shown atomic.Pointer[documentView]
}

// documentView is the latest view of a document for callers.
type documentView struct {
	of                 shownOf
	definition, filled *job.Job
}

// shownOf has the other data of a view, besides the document.
type shownOf struct {
	uid              job.ID
	version, epoch   int64
	state            job.JobState
	created, changed time.Time
	pausedBy         string
	pauseReason      job.Reason
	pausedUntil      time.Time
	failures         int
}

// status returns the server's information about a job.
func (s *shownOf) status() *job.Status {
	code, args := s.pauseReason.For()
	return &job.Status{
		State: s.state, Created: s.created, Changed: s.changed,
		PausedBy: s.pausedBy, PauseReason: s.pauseReason.String(), PauseCode: code, PauseArgs: args.Texts(), PausedFor: s.pauseReason, PausedUntil: s.pausedUntil,
		Failures: s.failures,
	}
}

// NewDocument returns the document of a definition whose defaults are filled in, without
// Text, [Timing] and Actor.
func NewDocument(definition, filled *job.Job) *Document {
	return &Document{Definition: definition, Filled: filled, Policy: CompilePolicy(filled), Calendars: Calendars(filled)}
}

// with returns a copy of a document with a change.
func (d *Document) with(change func(*Document)) *Document {
	own := &Document{
		Definition: d.Definition, Filled: d.Filled, Policy: d.Policy, Text: d.Text, Timing: d.Timing, Calendars: d.Calendars, Actor: d.Actor,
	}
	change(own)
	return own
}

// View returns a job in its public form.
func (j *Job) View() *store.Job {
	of := shownOf{j.UID, j.Version, j.Epoch, j.State, j.Created, j.Changed, j.PausedBy, j.PauseReason, j.PausedUntil, j.Failures}
	s := j.Document.shown.Load()
	if s == nil || s.of != of {
		status := of.status()
		definition, filled := *j.Document.Definition, *j.Document.Filled
		for _, d := range [...]*job.Job{&definition, &filled} {
			d.UID, d.Version, d.Epoch, d.Status = j.UID, j.Version, j.Epoch, status
		}
		s = &documentView{of, &definition, &filled}
		j.Document.shown.Store(s)
	}
	return &store.Job{Definition: s.definition, Filled: s.filled, Cursor: j.Cursor, Planned: j.Planned, Deleted: j.Deleted}
}

// Made reports whether a step has created the job.
func (j *Job) Made() bool { return j.was.version == 0 }

// Restored reports whether a step has brought back the deleted job.
func (j *Job) Restored() bool { return j.was.deleted && !j.Deleted }

// Revised reports whether a step has created a version of the job, and so a revision.
func (j *Job) Revised() bool { return j.Version != j.was.version && !j.Deleted }

// News reports whether planners or users must see the change of a step: the job goes into the feed
// of changes. An adopted job may differ only in the times of a change.
func (j *Job) News() bool {
	return j.adopted || j.Version != j.was.version || j.Epoch != j.was.epoch || j.State != j.was.state || j.Deleted != j.was.deleted || j.Retimed()
}

// Retimed reports whether a step has changed when the job is due.
func (j *Job) Retimed() bool {
	return j.Document != nil && (j.was.document == nil || j.Document.Timing != j.was.document.Timing)
}

// settleDocument updates the definition of a job that a decision has paused or resumed.
func (b *Batch) settleDocument(j *Job) {
	d := j.Document
	if d == nil {
		return
	}
	if paused := j.State == job.JobPaused; j.Revised() && d == j.was.document && d.Definition.Paused != paused {
		j.Document = d.with(func(own *Document) {
			definition, filled := *d.Definition, *d.Filled
			definition.Paused, filled.Paused = paused, paused
			own.Definition, own.Filled, own.Text, own.Actor = &definition, &filled, nil, System
		})
	}
	if j.News() && !j.adopted {
		j.Changed = b.now
	}
}
