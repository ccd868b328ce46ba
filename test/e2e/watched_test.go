//go:build servers

package e2e_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

// watched is a job with a fixed rate, and what is known of the times in which it
// falls due.
type watched struct {
	mu    sync.Mutex
	job   evidence.Job
	name  string
	every time.Duration
	born  time.Time // when it was first asked for
	// gone is the last moment that is looked at; zero until the job is paused
	// or deleted for good.
	gone time.Time
	// withdrawn is when the present pause was acknowledged; zero without.
	withdrawn time.Time
}

func newWatched(name string, every time.Duration) *watched {
	return &watched{name: name, every: every, job: evidence.Job{Name: "default/" + name, Named: map[string]int{}}}
}

// change makes a change of the job. Until its answer is there, one or the other
// may hold. The request is made again until it is answered.
func (w *watched) change(request func() (client.Change, error), again func(error) bool) error {
	sent := time.Now()
	w.mu.Lock()
	if w.born.IsZero() {
		w.born = sent
	}
	if !w.withdrawn.IsZero() {
		w.job.Withdrawn = append(w.job.Withdrawn, evidence.Span{From: w.withdrawn, To: sent})
		w.withdrawn = time.Time{}
	}
	w.mu.Unlock()
	answer, err := request()
	for err != nil && again(err) {
		answer, err = request()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.job.Open = append(w.job.Open, evidence.Span{From: sent, To: time.Now()})
	for _, run := range slices.Concat(answer.Running, answer.MayStart) {
		w.job.Named[run.ID.String()] = run.Attempt
	}
	return err
}

// withdraw is change for a pause or a deletion.
func (w *watched) withdraw(request func() (client.Change, error), again func(error) bool) error {
	err := w.change(request, again)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.withdrawn = time.Now()
	w.gone = w.withdrawn
	return err
}

// never asks no second time.
func never(error) bool { return false }

// finish returns what is expected of the job, which is withdrawn.
func (w *watched) finish() evidence.Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.job
	if !w.withdrawn.IsZero() {
		j.Withdrawn = append(j.Withdrawn, evidence.Span{From: w.withdrawn, To: w.withdrawn.Add(time.Hour)})
	}
	for t := w.born.Truncate(w.every).Add(w.every); t.Before(w.gone); t = t.Add(w.every) {
		j.Occurrences = append(j.Occurrences, t)
	}
	return j
}

// create makes the job with a command and further lines of its document.
func (w *watched) create(s *server, command, more string) {
	s.t.Helper()
	text := fmt.Sprintf("name: %s\nschedule: {every: %s}\nrun: {shell: %s}\n%s", w.name, w.every, command, more)
	err := w.change(func() (client.Change, error) {
		_, err := s.tryApply(text)
		return client.Change{}, err
	}, never)
	if err != nil {
		s.t.Fatal(err)
	}
}

// pause pauses the job for good.
func (w *watched) pause(s *server) {
	s.t.Helper()
	err := w.withdraw(func() (client.Change, error) {
		return s.Pause(s.t.Context(), "default", w.name, client.PauseRequest{})
	}, never)
	if err != nil {
		s.t.Fatal(err)
	}
}
