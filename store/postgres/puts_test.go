//go:build servers

package postgres

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Of calls that share a step only the bad one is refused.
func TestOneBadJobOfABatchIsRefusedAlone(t *testing.T) {
	t.Parallel()
	s := open(t, emptySchema(t), Options{})
	const callers = 24
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			p := store.PutJob{Definition: &job.Job{Name: fmt.Sprintf("job-%d", i), Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}, IfVersion: store.AnyVersion, Actor: "ann"}
			if i%8 == 3 {
				p.IfVersion = 7
			}
			j, err := store.PutOne(t.Context(), s, p)
			if err == nil && j.Definition.Name != p.Definition.Name {
				err = errors.New("the answer is that of job " + j.Definition.Name)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for i, err := range errs {
		if refused := errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict); refused != (i%8 == 3) || err != nil && !refused {
			t.Errorf("job %d: %v", i, err)
		}
	}
}

// Calls that share a step keep their own actors.
func TestEachJobOfABatchHasItsOwnOrigin(t *testing.T) {
	t.Parallel()
	s := open(t, emptySchema(t), Options{})
	const callers = 24
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			var from store.Origin // a program with the store has its own origin
			if i > 0 {
				from = store.Origin{Client: "api", Address: fmt.Sprintf("192.0.2.%d", i)}
			}
			j := &job.Job{Name: fmt.Sprintf("job-%d", i), Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}
			if _, err := store.PutOne(store.WithOrigin(t.Context(), from), s, store.PutJob{Definition: j, New: true, Actor: "ann"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	records, _, err := s.Audit(t.Context(), store.AuditQuery{Limit: callers})
	if err != nil || len(records) != callers {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for _, r := range records {
		want := "192.0.2." + strings.TrimPrefix(r.Object, "default/job-")
		if want == "192.0.2.0" {
			want = ""
		}
		if r.Origin.Address != want {
			t.Errorf("job %s was created from %q, want %q", r.Object, r.Origin.Address, want)
		}
	}
}
