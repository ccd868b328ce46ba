package truth_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/check/truth"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// world has a run that ran on node b from 0 to 10 s, and a record of another one at 12 s.
func world(outcome job.Outcome, why job.Reason) *truth.World {
	first, second, session, uid, step := job.ID{15: 1}, job.ID{15: 2}, job.ID{15: 3}, job.ID{15: 4}, job.ID{15: 8}
	record := func(id job.ID, due, ended time.Time, outcome job.Outcome, why job.Reason, number int) []*store.Record {
		return []*store.Record{{
			Final: true, Run: job.Run{ID: id, JobUID: uid, Name: "a", Kind: job.RunScheduled, Scheduled: due, Due: due, Node: "b"},
			Attempt: job.Attempt{Run: id, Number: number, Node: "b", Ended: ended, Outcome: outcome, Reason: why},
		}}
	}
	return &truth.World{
		Records: map[job.ID][]*store.Record{
			first:  record(first, at(0), at(10), job.OutcomeSucceeded, job.Reason{}, 1),
			second: record(second, at(5), at(12), outcome, why, 1),
			step:   {{Run: job.Run{ID: step, Parent: second, Kind: job.RunStep, Key: "a/x"}, Attempt: job.Attempt{Number: 1, Ended: at(11), Outcome: job.OutcomeFailed, Reason: reason.Unexplained.Of()}}},
		},
		Active: map[job.ID]store.Run{
			{15: 5}: {Run: job.Run{ID: job.ID{15: 5}, JobUID: uid}}, {15: 6}: {Run: job.Run{ID: job.ID{15: 6}, JobUID: uid}}, {15: 7}: {Run: job.Run{ID: job.ID{15: 7}, JobUID: uid}},
		},
		Cancels:  map[job.ID]int{second: 1},
		Attempts: map[job.ID][]truth.Attempt{first: {{Number: 1, Started: at(0), Ended: at(10)}}},
		Claims:   map[job.ID][]truth.Claim{first: {{By: session, Made: at(0), From: at(0), To: at(10)}}, second: {{By: session, Made: at(5), From: at(5), To: at(12)}}},
		Sessions: map[job.ID]*truth.Session{session: {Node: "b", HeardAt: []time.Time{at(-9), at(0), at(2)}}},
		Lost:     func(job.ID, int) bool { return false },
		Handed:   func(job.ID, int) bool { return false },
		Changed:  func(string, time.Time) bool { return false },
		Rule:     func(string) (truth.Rule, bool) { return truth.Rule{Queue: 3}, true },
		Texts:    map[string]job.Outcome{"": job.OutcomeSucceeded},
		Whole:    true, Stalled: time.Second, Untold: 3 * time.Second, OnItsWay: time.Second,
	}
}

// A reason is judged by what happened, so that each false one is found.
func TestFalseReasonsAreFound(t *testing.T) {
	first, second, step := job.ID{15: 1}, job.ID{15: 2}, job.ID{15: 8}
	isLast := func(w *truth.World) { w.Attempts[first][0].Ended, w.Records[first][0].Attempt.Ended = at(6), at(6) }
	for _, test := range []struct {
		name    string
		outcome job.Outcome
		why     job.Reason
		spoil   func(*truth.World)
	}{
		{"the other run had ended long before", job.OutcomeSkipped, reason.StillRunning.Of(first, at(0), "b"), isLast},
		{"the other run does not exist", job.OutcomeSkipped, reason.StillRunning.Of(first, at(0), "b"), func(w *truth.World) { delete(w.Records, first) }},
		{"the node was heard since", job.OutcomeLost, reason.NodeSilent.Of("b", 9*time.Second), func(w *truth.World) {
			s := w.Sessions[job.ID{15: 3}]
			s.HeardAt = append(s.HeardAt, at(7))
		}},
		{"the node was heard after the run was due", job.OutcomeLost, reason.StartUnknown.Of(reason.NodeSilent.Of("b", 3*time.Second)), func(w *truth.World) {
			s := w.Sessions[job.ID{15: 3}]
			s.HeardAt = append(s.HeardAt, at(7))
		}},
		{"the node was heard later than that", job.OutcomeSkipped, reason.EndUnreported.Of(first, at(0), reason.LastHeard.Of("b", 10*time.Second)), func(w *truth.World) {
			s := w.Sessions[job.ID{15: 3}]
			s.HeardAt = append(s.HeardAt, at(9))
		}},
		{"the process lives", job.OutcomeLost, reason.ProcessEnded.Of("b"), func(w *truth.World) {
			s := w.Sessions[job.ID{15: 3}]
			s.HeardAt = append(s.HeardAt, at(14))
		}},
		{"a node was there", job.OutcomeMissed, reason.MissedLatest.Of(reason.NoNodeThere.Of(at(3), at(11))), func(w *truth.World) {
			s := w.Sessions[job.ID{15: 3}]
			s.HeardAt = append(s.HeardAt, at(7))
		}},
		{"the job has another policy", job.OutcomeMissed, reason.MissedLatest.Of(reason.NoNodeThere.Of(at(3), at(11))), func(w *truth.World) {
			w.Rule = func(string) (truth.Rule, bool) { return truth.Rule{Missed: job.MissedAll}, true }
		}},
		{"the queue had room", job.OutcomeSkipped, reason.QueueFull.Of(reason.StillRunning.Of(first, at(0), "b"), 3), func(w *truth.World) {
			w.Rule = func(string) (truth.Rule, bool) { return truth.Rule{Queue: 4}, true }
		}},
		{"fewer runs waited", job.OutcomeSkipped, reason.QueueFull.Of(reason.StillRunning.Of(first, at(0), "b"), 3), func(w *truth.World) { delete(w.Active, job.ID{15: 5}) }},
		{"fewer runs waited for the window", job.OutcomeSkipped, reason.HeldMax.Of(job.Reason{}, 3), func(w *truth.World) { delete(w.Active, job.ID{15: 5}) }},
		{"the command succeeded", job.OutcomeFailed, reason.ExitStatus.Of(1), func(w *truth.World) {
			w.Attempts[second] = []truth.Attempt{{Number: 1, Started: at(6), Ended: at(7), Outcome: job.OutcomeSucceeded}}
		}},
		{"the command failed", job.OutcomeSucceeded, job.Reason{}, func(w *truth.World) {
			w.Attempts[second] = []truth.Attempt{{Number: 1, Started: at(6), Ended: at(7), Outcome: job.OutcomeFailed}}
		}},
		{"the command had ended before the fence", job.OutcomeLost, reason.NodeFenced.Of(), func(w *truth.World) {
			w.Attempts[second] = []truth.Attempt{{Number: 1, Started: at(6), Ended: at(7), Outcome: job.OutcomeSucceeded}}
		}},
		{"the process lives after its watchdog has ended it", job.OutcomeLost, reason.ByWatchdog.Of(reason.ProcessEnded.Of("b"), reason.EndedBy.Of("SIGTERM")), func(w *truth.World) {
			s := w.Sessions[job.ID{15: 3}]
			s.HeardAt = append(s.HeardAt, at(14))
		}},
		{"it took less", job.OutcomeTimedOut, reason.Timeout.Of(5 * time.Second), func(w *truth.World) { w.Records[second][0].Attempt.Started = at(9) }},
		{"it ran", job.OutcomeMissed, reason.NoNodeRan.Of(), func(w *truth.World) {
			w.Attempts[second] = []truth.Attempt{{Number: 1, Started: at(6), Ended: at(7)}}
		}},
		{"it was tried again", job.OutcomeFailed, reason.NotRetried.Of(reason.ExitStatus.Of(1), reason.CancelledBefore.Of("ann")), func(w *truth.World) {
			w.Attempts[second] = []truth.Attempt{{Number: 2, Started: at(13)}}
		}},
		{"its node said otherwise", job.OutcomeLost, reason.SaidLater.Of(reason.ProcessEnded.Of("b"), job.OutcomeSucceeded), func(w *truth.World) {
			w.Attempts[second] = []truth.Attempt{{Number: 1, Started: at(6), Ended: at(7), Outcome: job.OutcomeFailed}}
		}},
		{"the node was heard all the time", job.OutcomeMissed, reason.NodeGone.Of("b"), func(w *truth.World) { w.Sessions[job.ID{15: 3}].HeardAt = []time.Time{at(9)} }},
		{"no user cancelled it", job.OutcomeCancelled, reason.Cancelled.Of("ann", job.Reason{}), func(w *truth.World) { w.Cancels = nil }},
		{"the steps of the flow succeeded", job.OutcomeFailed, reason.StepsFailed.Of([]string{"x"}), func(w *truth.World) { w.Records[step][0].Attempt.Outcome = job.OutcomeSucceeded }},
		{"the job is as it was", job.OutcomeWithdrawn, reason.JobPaused.Of("ann", job.Reason{}), nil},
		{"the attempt never counted as lost", job.OutcomeSucceeded, reason.CameLate.Of(job.Reason{}), nil},
		{"a failure has the reason of a loss", job.OutcomeFailed, reason.NodeSilent.Of("b", 9*time.Second), nil},
		{"a success has the reason of a signal", job.OutcomeSucceeded, reason.EndedBy.Of("SIGTERM"), nil},
		{"nothing judges a text of nobody", job.OutcomeFailed, job.Text("because"), nil},
	} {
		w := world(test.outcome, test.why)
		if test.spoil != nil {
			if found := w.Check(); len(found) > 0 {
				t.Errorf("%s: a true reason is called false: %s", test.name, strings.Join(found, "\n"))
			}
			test.spoil(w)
		}
		if found := w.Check(); len(found) == 0 {
			t.Errorf("%s: %q is not found", test.name, test.why)
		}
	}
}

// A step claims a retry and skips the run behind it: the record of the skip has the same moment in whole
// microseconds.
func TestAClaimOfTheSameStepWasThere(t *testing.T) {
	first, session := job.ID{15: 1}, job.ID{15: 3}
	for made, untrue := range map[time.Duration]int{999 * time.Nanosecond: 0, time.Microsecond: 1} {
		w := world(job.OutcomeSkipped, reason.WasRunning.Of(first, at(0), "b", 7*time.Second))
		w.Attempts[first][0].Ended, w.Claims[first][0].To = at(6), at(6)
		w.Claims[first] = append(w.Claims[first], truth.Claim{By: session, Made: at(12).Add(made), From: at(12)})
		if found := w.Check(); len(found) != untrue {
			t.Errorf("a claim %s after the record: %q", made, found)
		}
	}
}

// Who watches from outside may not see the renewal that ends an outage.
func TestAnOutageEndsWithARenewal(t *testing.T) {
	why := reason.AfterOutage.Of(reason.MissedNone.Of(job.Reason{}), reason.StoreAway.Of("b", at(2), at(9)))
	for _, test := range []struct {
		whole  bool
		heard  []time.Time
		untrue bool
	}{
		{true, []time.Time{at(0), at(2), at(9.5)}, false},
		{true, []time.Time{at(0), at(2)}, true},
		{false, []time.Time{at(0), at(2)}, false},
		{false, []time.Time{at(0), at(2), at(5), at(9.5)}, true},
	} {
		w := world(job.OutcomeMissed, why)
		w.Rule = func(string) (truth.Rule, bool) { return truth.Rule{Missed: job.MissedNone}, true }
		w.Whole, w.Sessions[job.ID{15: 3}].HeardAt = test.whole, test.heard
		if found := w.Check(); (len(found) > 0) != test.untrue {
			t.Errorf("heard at %v, all: %t: %q", test.heard, test.whole, found)
		}
	}
}
