//go:build servers

package etcd

import (
	"testing"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
)

// A step about a job costs what the runs that it changes cost, however many others wait.
func TestAJobWithManyWaitingRunsIsNoSlower(t *testing.T) {
	storetest.TestPace(t, func(t *testing.T, o storetest.Options) store.Store { return open(t, empty(), optionsOf(o)) }, paceMost, 1000, 20_000)
}

// paceMost is how many times as long a cycle with 20,000 waiting runs may take as one with 10: twice,
// and as much again for a busy machine.
const paceMost = 4

// More runs wait than etcd takes keys in a request: an edit that moves them all is one commit.
func TestAnEditMovesALongBacklogAtOnce(t *testing.T) {
	t.Parallel()
	b := storetest.NewBacklog(t, func(t *testing.T, o storetest.Options) store.Store { return open(t, empty(), optionsOf(o)) })
	b.Grow(6000)
	b.Move()
	b.Live()
}
