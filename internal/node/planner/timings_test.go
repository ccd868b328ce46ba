package planner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/job"
)

func TestEqualSchedulesShareATiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.put(`{name: a, schedule: {cron: "0 * * * *"}, run: {shell: x}}`)
		b := r.put(`{name: b, schedule: {cron: "0 * * * *"}, run: {shell: x}}`)
		r.put(`{name: c, schedule: {cron: "30 * * * *", spread: 10m}, run: {shell: x}}`)
		r.put(`{name: d, schedule: {cron: "0 * * * *"}, paused: true, run: {shell: x}}`)
		r.start()
		time.Sleep(time.Second)
		count := func(of []job.ID) string {
			var list []string
			for _, timing := range r.planner.Timings(of) {
				list = append(list, fmt.Sprintf("%d over %s at minute %d", timing.Jobs, timing.Spread, timing.Schedule.Next(r.wall()).Minute()))
			}
			slices.Sort(list)
			return strings.Join(list, ", ")
		}
		if got, want := count(nil), "1 over 10m0s at minute 30, 2 over 0s at minute 0"; got != want {
			t.Errorf("the timings are %q, want %q", got, want)
		}
		if got, want := count([]job.ID{a.Definition.UID, b.Definition.UID, {}}), "2 over 0s at minute 0"; got != want {
			t.Errorf("those of two jobs are %q, want %q", got, want)
		}
		if got := count([]job.ID{}); got != "" {
			t.Errorf("those of no job are %q", got)
		}
	})
}
