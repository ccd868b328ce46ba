package worker_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/check/logtest"
	"github.com/belfry-cron/belfry/store"
)

// An outage of the store is logged once, whatever the number of hints, and its end once.
func TestStoreOutageIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var said logtest.Log
		r.log = slog.New(slog.NewTextHandler(&said, nil))
		r.start()
		time.Sleep(3 * time.Second)
		r.store.set(func(h *hooks) { h.now = func() (time.Time, error) { return time.Time{}, errAway } })
		for range 100 {
			r.wake <- store.HintJobs
			time.Sleep(50 * time.Millisecond)
		}
		r.store.set(func(h *hooks) { h.now = nil })
		time.Sleep(3 * time.Second)
		r.stop()
		if log := said.String(); strings.Count(log, "cannot read runs") != 1 || strings.Count(log, "reading runs works again") != 1 {
			t.Errorf("the log is not one line when the store went and one when it came back:\n%s", log)
		}
	})
}
