//go:build servers

package etcd

import (
	"errors"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
)

// A step about a job costs what the runs that it changes cost, however many others wait.
func TestAJobWithManyWaitingRunsIsNoSlower(t *testing.T) {
	storetest.TestPace(t, func(t *testing.T, o storetest.Options) store.Store { return open(t, empty(), optionsOf(o)) }, 100, paceMost, 1000, 20_000)
}

// paceMost is how many times as long a cycle with 20,000 waiting runs may take as one with 10: twice,
// and as much again for a busy machine.
const paceMost = 4

// An edit that writes more than a request may have is refused with a reason, and leaves the job as
// it was.
func TestAnEditThatIsTooLargeSaysSo(t *testing.T) {
	t.Parallel()
	var s store.Store
	b := storetest.NewBacklog(t, func(t *testing.T, o storetest.Options) store.Store {
		s = open(t, empty(), optionsOf(o))
		return s
	})
	b.Grow(6000)
	documents, err := job.Decode("job.yaml", []byte("name: a\nschedule: {cron: '* * * * *'}\npolicy: {overlap: queue, concurrency_key: shared}\nrun: {shell: 'true'}"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.PutOne(t.Context(), s, store.PutJob{Definition: documents[0].Job, IfVersion: store.AnyVersion, Actor: "ann"})
	if !errors.Is(err, store.ErrTooMany) || !strings.Contains(err.Error(), "--max-request-bytes") {
		t.Errorf("got %v, want %v", err, store.ErrTooMany)
	}
	b.Cycle()
	b.Live()
}
