package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Unmet is a missed expectation of a run, stored until the delivering node takes it.
type Unmet struct {
	Namespace string     `json:"namespace"`
	Job       string     `json:"job"`
	UID       job.ID     `json:"uid"`
	Run       job.ID     `json:"run"`
	Attempt   int        `json:"attempt"`
	Node      string     `json:"node,omitempty"`
	Time      time.Time  `json:"time"`
	Text      job.Reason `json:"text"`
}

// Overdue stores missed expectations of runs for the delivering node. Without channels it stores
// none.
func Overdue(ctx context.Context, s Store, now time.Time, alerts []store.Alert) error {
	if channels, err := s.Documents(ctx, job.KindChannel); err != nil || len(channels) == 0 {
		return err
	}
	for i := range alerts {
		r := &alerts[i].Run
		for _, text := range alerts[i].Unmet {
			u := Unmet{r.Namespace, r.Name, r.JobUID, r.ID, r.Attempt, r.Node, now.UTC(), text}
			note, err := json.Marshal(u)
			if err != nil {
				return err
			}
			name := notification.UnmetNotes + r.ID.String() + "-" + fmt.Sprintf("%08x", hashOf(text.String()))
			_, err = s.PutNote(ctx, store.Note{Name: name, Text: note})
			if err != nil && !errors.Is(err, store.ErrConflict) { // it is stored already
				return err
			}
		}
	}
	return nil
}

// overtime adds missed expectations. It removes their notes after the events are stored.
func (n *Notifier) overtime(ctx context.Context, now time.Time, done *changes) (notes []store.Note, err error) {
	if notes, err = n.Store.Notes(ctx, notification.UnmetNotes, "", notesPage); err != nil || len(notes) == 0 {
		return nil, err
	}
	list := make([]Unmet, len(notes))
	uids := make([]job.ID, len(notes))
	for i, note := range notes {
		if err := json.Unmarshal(note.Text, &list[i]); err != nil {
			return nil, fmt.Errorf("note %s: %w: %w", note.Name, store.ErrDamaged, err)
		}
		uids[i] = list[i].UID
	}
	slices.SortFunc(uids, compareIDs)
	jobs, err := n.jobs(ctx, slices.Compact(uids))
	if err != nil {
		return nil, err
	}
	for _, u := range list {
		e := notification.Event{
			Kind: job.NoticeUnmet, Namespace: u.Namespace, Job: u.Job, UID: u.UID, Node: u.Node, Run: u.Run, Attempt: u.Attempt, Time: u.Time, Text: u.Text,
		}
		if j := jobs[u.UID]; j != nil {
			e.Labels = j.Definition.Labels
		}
		n.note(e, now, done)
	}
	return notes, nil
}

// hashOf hashes a text for its identity.
func hashOf(text string) (h uint32) {
	for _, b := range []byte(strings.TrimSpace(text)) {
		h = h*31 + uint32(b)
	}
	return h
}
