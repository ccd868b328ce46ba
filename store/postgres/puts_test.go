//go:build servers

package postgres

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Calls that go together in one step are refused each alone.
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
