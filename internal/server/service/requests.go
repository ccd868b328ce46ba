package service

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// requestNotes begins the names of requests, before the id of the run.
	requestNotes = "request/"
	// requestsEvery is the interval of looks for requests where the database does not notify: four
	// reads of an empty range each second.
	requestsEvery = 250 * time.Millisecond
	// requestsAtOnce is how many runs are created together: their steps share commits.
	requestsAtOnce = 16
	// requestsPage is how many requests are read at once.
	requestsPage = 100
)

// Requests are requests for runs in transactions of programs. A request is a note, which exists once its
// transaction is committed. Any node creates its run with the id of the request as key, so once, and then
// removes the note.
type Requests struct {
	*base
	runs  *Runs
	store markStore
	in    store.Transactional // nil for a store without transactions of programs
}

// requested is the content of a request.
type requested struct {
	By       string            `json:"by"`
	Job      Name              `json:"job"`
	Key      string            `json:"key,omitempty"`
	Request  client.RunRequest `json:"request,omitzero"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// ErrNoTransactions is returned for a store in which programs have no transactions of their own.
var ErrNoTransactions = errors.New("the store has no transactions of programs: PostgreSQL, MySQL, MariaDB and SQLite have")

// In requests a run in a transaction, and returns the id that the run will have. A mistake in the request is
// returned at once.
func (s *Requests) In(ctx context.Context, tx any, who Caller, name Name, request client.RunRequest, key string, metadata map[string]string) (id job.ID, err error) {
	j, _, err := s.runs.asked(ctx, who, name, request, metadata)
	if err == nil {
		err = startable(j)
	}
	if err == nil && s.in == nil {
		err = ErrNoTransactions
	}
	if err != nil {
		return id, err
	}
	if id, err = s.newID(); err != nil {
		return id, err
	}
	text, err := json.Marshal(requested{By: who.Name, Job: name, Key: key, Request: request, Metadata: metadata})
	if err != nil {
		return id, err
	}
	return id, s.in.NoteIn(ctx, tx, store.Note{Name: requestNotes + id.String(), Text: text})
}

// Run creates the runs of committed requests until ctx ends.
func (s *Requests) Run(ctx context.Context) {
	if s.in == nil {
		return
	}
	fails := failurelog.New(s.log, "cannot create the runs that programs request in transactions", "runs are created for transactions again")
	ticker := time.NewTicker(requestsEvery)
	defer ticker.Stop()
	for {
		err := s.round(ctx)
		if ctx.Err() != nil {
			return
		}
		fails.Saw(err)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.in.Noted():
		}
	}
}

// round creates the runs of all requests.
func (s *Requests) round(ctx context.Context) error {
	for after := ""; ; {
		notes, err := s.store.Notes(ctx, requestNotes, after, requestsPage)
		if err != nil || len(notes) == 0 {
			return err
		}
		var group sync.WaitGroup
		room := make(chan struct{}, requestsAtOnce)
		failed := make([]error, len(notes))
		for i := range notes {
			room <- struct{}{}
			group.Go(func() {
				defer func() { <-room }()
				failed[i] = s.make(ctx, &notes[i])
			})
		}
		group.Wait()
		if err := errors.Join(failed...); err != nil || len(notes) < requestsPage {
			return err
		}
		after = notes[len(notes)-1].Name
	}
}

// make creates the run of a request and removes the request. One that the job refuses is in the audit and in the
// log: its program has been told before.
func (s *Requests) make(ctx context.Context, n *store.Note) error {
	var r requested
	id, err := job.ParseID(strings.TrimPrefix(n.Name, requestNotes))
	if err == nil {
		err = json.Unmarshal(n.Text, &r)
	}
	if err == nil && !s.isMade(ctx, id) {
		who := Caller{Name: r.By, Role: store.RoleAdmin, Namespace: r.Job.Namespace}
		_, err = s.runs.start(ctx, who, r.Job, r.Request, r.Key, r.Metadata, id)
	}
	if err != nil && isPassing(err) {
		return err
	}
	done := store.Note{Name: n.Name, Version: n.Version}
	if err == nil {
		_, err = s.store.PutNote(ctx, done)
	} else {
		s.log.LogAttrs(ctx, slog.LevelError, "a run that was requested in a transaction was not created", slog.String("run", strings.TrimPrefix(n.Name, requestNotes)), slog.String("job", r.Job.String()), slog.Any("error", err))
		err = s.store.PutAudited(ctx, store.AuditedNote{Note: done, Audit: store.AuditRecord{Actor: r.By, Action: "run.refuse", Object: r.Job.String(), Detail: ErrorOf(err).Detail}})
	}
	if errors.Is(err, store.ErrConflict) {
		return nil // another node has removed it
	}
	return err
}

// isMade reports whether the run of an old request exists, whose key may have expired: its note was not removed
// when all nodes went away.
func (s *Requests) isMade(ctx context.Context, id job.ID) bool {
	if s.now().Sub(id.Time()) < store.KeyLife/2 {
		return false
	}
	_, err := s.runs.run(ctx, id)
	return err == nil
}

// isPassing reports whether a refused request may be accepted later, without another change.
func isPassing(err error) bool {
	switch ErrorOf(err).Type {
	case client.TypeNotFound, client.TypeInvalid, client.TypeConflict, client.TypeMalformed:
		return errors.Is(err, store.ErrConflict)
	}
	return true
}
