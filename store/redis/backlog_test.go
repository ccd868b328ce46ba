//go:build servers

package redis

import (
	"testing"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
)

// A step about a job costs as much as the runs that it changes, however many other runs wait.
func TestAJobWithManyWaitingRunsIsNoSlower(t *testing.T) {
	storetest.TestPace(t, func(t *testing.T, o storetest.Options) store.Store { return open(t, empty(), optionsOf(o)) }, paceMost, 1000, 20_000)
}

// paceMost is how many times as long a cycle may take with 20,000 waiting runs as with 10: twice,
// doubled for a busy machine.
const paceMost = 4
