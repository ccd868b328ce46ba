package evidence_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return noon.Add(time.Duration(seconds * float64(time.Second)))
}

func TestLinesAreReadAsTheyWereWritten(t *testing.T) {
	want := []evidence.Event{
		{Kind: evidence.Start, Job: "default/a", Run: "R1", Attempt: 2, Scheduled: at(0), PID: 7, At: at(0.5).Local()},
		{Kind: evidence.End, Job: "default/a", Run: "R1", Attempt: 2, PID: 7, At: at(1).Local(), Detail: "0"},
	}
	var text strings.Builder
	for _, e := range want {
		text.WriteString(e.Line())
	}
	got, err := evidence.Parse(text.String() + "start half a li")
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	if _, err := evidence.Parse("start a b\n"); err == nil {
		t.Fatal("a line of three words was accepted")
	}
}

// day is a history without a fault: a job with occurrences at seconds 1 to 4, of
// which the third is skipped and the fourth has a retry, and a run by hand.
func day() evidence.History {
	h := evidence.History{
		Jobs: []evidence.Job{{
			Name: "default/a", Occurrences: []time.Time{at(1), at(2), at(3), at(4)}, Slots: 1, Retries: 1, StartWithin: time.Second,
		}},
		Acknowledged: map[string]string{"H": "succeeded", "R1": ""},
	}
	ran(&h, "R1", "schedule", at(1), "0")
	ran(&h, "R2", "schedule", at(2), "0")
	h.Records = append(h.Records, evidence.Record{Job: "default/a", Run: "R3", Kind: "schedule", Scheduled: at(3), Outcome: "skipped"})
	ran(&h, "R4", "schedule", at(4), "1", "0")
	ran(&h, "H", "hand", at(10), "0")
	return h
}

// ran adds a run with an attempt for each exit code, 0.2 s each.
func ran(h *evidence.History, run, kind string, scheduled time.Time, codes ...string) {
	r := evidence.Record{Job: "default/a", Run: run, Kind: kind, Scheduled: scheduled}
	when := scheduled.Add(10 * time.Millisecond)
	for i, code := range codes {
		e := evidence.Event{Job: "default/a", Run: run, Attempt: i + 1, Scheduled: scheduled, PID: 100 + len(h.Events)}
		e.Kind, e.At = evidence.Start, when
		h.Events = append(h.Events, e)
		e.Kind, e.At, e.Detail = evidence.End, when.Add(200*time.Millisecond), code
		h.Events = append(h.Events, e)
		when = when.Add(300 * time.Millisecond)
		r.Outcome = "failed"
		if code == "0" {
			r.Outcome = "succeeded"
		}
		r.Attempts = append(r.Attempts, r.Outcome)
	}
	h.Records = append(h.Records, r)
}

// lostAfterSuccess makes the first attempt of a run, which has succeeded, one that
// was lost, and adds a second that succeeds.
func lostAfterSuccess(h *evidence.History, r *evidence.Record) {
	r.Attempts = []string{"lost", "succeeded"}
	for _, e := range slices.Clone(h.Events) {
		if e.Run == r.Run {
			e.Attempt, e.PID, e.At = 2, 998, e.At.Add(450*time.Millisecond)
			h.Events = append(h.Events, e)
		}
	}
}

func TestTheCheckerFindsEachFault(t *testing.T) {
	record := func(h *evidence.History, run string) *evidence.Record {
		i := slices.IndexFunc(h.Records, func(r evidence.Record) bool { return r.Run == run })
		return &h.Records[i]
	}
	drop := func(h *evidence.History, run string) {
		h.Records = slices.DeleteFunc(h.Records, func(r evidence.Record) bool { return r.Run == run })
	}
	silence := func(h *evidence.History, run string) {
		h.Events = slices.DeleteFunc(h.Events, func(e evidence.Event) bool { return e.Run == run })
	}
	tests := []struct {
		name  string
		plant func(*evidence.History)
		want  evidence.Invariant // "" for none
	}{
		{"no fault", func(*evidence.History) {}, ""},
		{"an occurrence has two runs", func(h *evidence.History) { ran(h, "R5", "schedule", at(2), "0") }, evidence.Once},
		{"a run for a moment when nothing fell due", func(h *evidence.History) { ran(h, "R5", "schedule", at(7), "0") }, evidence.Once},
		{"a run that is recorded twice", func(h *evidence.History) { h.Records = append(h.Records, *record(h, "R3")) }, evidence.Once},
		{"an occurrence that ran and is among the missed", func(h *evidence.History) {
			h.Records = append(h.Records, evidence.Record{Job: "default/a", Run: "M", Kind: "schedule", Scheduled: at(1), Until: at(2), Outcome: "missed"})
		}, evidence.Once},
		{"an occurrence that vanished", func(h *evidence.History) { drop(h, "R3") }, evidence.Accounted},
		{"an occurrence that vanished while no server ran", func(h *evidence.History) {
			drop(h, "R3")
			h.Down = []evidence.Span{{From: at(2.5), To: at(3.5)}}
		}, evidence.Accounted},
		{"an occurrence that is among the missed", func(h *evidence.History) {
			record(h, "R3").Outcome, record(h, "R3").Until = "missed", at(3.1)
		}, ""},
		{"a run that the history does not have", func(h *evidence.History) { drop(h, "R1"); h.Acknowledged = nil }, evidence.Accounted},
		{"a job that was not created", func(h *evidence.History) { h.Jobs[0].Name = "default/b" }, evidence.Accounted},
		{"an attempt that started twice", func(h *evidence.History) {
			e := h.Events[0]
			e.PID, e.At = 999, at(1.5)
			h.Events = append(h.Events, e)
		}, evidence.StartedOnce},
		{"an attempt after the success", func(h *evidence.History) {
			e := h.Events[0]
			e.Attempt, e.At = 2, at(1.5)
			h.Events = append(h.Events, e)
			record(h, "R1").Attempts = []string{"succeeded", "succeeded"}
		}, evidence.StartedOnce},
		{"an attempt after a success of which the server did not hear before it died", func(h *evidence.History) {
			lostAfterSuccess(h, record(h, "R1"))
			h.Down = []evidence.Span{{From: at(1.3), To: at(1.4)}}
		}, ""},
		{"an attempt after a success, although no server died", func(h *evidence.History) {
			lostAfterSuccess(h, record(h, "R1"))
		}, evidence.StartedOnce},
		{"an attempt after a success, long before a server died", func(h *evidence.History) {
			lostAfterSuccess(h, record(h, "R1"))
			h.Down = []evidence.Span{{From: at(60), To: at(61)}}
		}, evidence.StartedOnce},
		{"more attempts than allowed", func(h *evidence.History) { h.Jobs[0].Retries = 0 }, evidence.StartedOnce},
		{"a first attempt after the second", func(h *evidence.History) {
			for i := range h.Events {
				if h.Events[i].Run == "R4" {
					h.Events[i].Attempt = 3 - h.Events[i].Attempt
				}
			}
		}, evidence.StartedOnce},
		{"a start while the job was paused", func(h *evidence.History) { h.Jobs[0].Withdrawn = []evidence.Span{{From: at(1.5), To: at(2.5)}} }, evidence.Withdrawn},
		{"a start while the job was paused, of which the pause has told", func(h *evidence.History) {
			h.Jobs[0].Withdrawn = []evidence.Span{{From: at(1.5), To: at(2.5)}}
			h.Jobs[0].Named = map[string]int{"R2": 1}
		}, ""},
		{"a retry while the job was paused, of which the pause has not told", func(h *evidence.History) {
			h.Jobs[0].Withdrawn = []evidence.Span{{From: at(4.2), To: at(5)}}
			h.Jobs[0].Named = map[string]int{"R4": 1}
		}, evidence.Withdrawn},
		{"a run by hand while the job was paused", func(h *evidence.History) { h.Jobs[0].Withdrawn = []evidence.Span{{From: at(9.5), To: at(12)}} }, ""},
		{"an occurrence during a pause without a record", func(h *evidence.History) {
			drop(h, "R3")
			h.Jobs[0].Withdrawn = []evidence.Span{{From: at(2.5), To: at(3.5)}}
		}, ""},
		{"an occurrence without a record while the job was being changed", func(h *evidence.History) {
			drop(h, "R3")
			h.Jobs[0].Open = []evidence.Span{{From: at(2.5), To: at(3.5)}}
		}, ""},
		{"an occurrence that waited and was withdrawn by a later pause", func(h *evidence.History) {
			record(h, "R3").Outcome = "withdrawn"
			h.Jobs[0].Open = []evidence.Span{{From: at(3.5), To: at(3.6)}}
		}, ""},
		{"an occurrence that was withdrawn beforehand, and not planned again", func(h *evidence.History) {
			record(h, "R3").Outcome = "withdrawn"
			h.Jobs[0].Open = []evidence.Span{{From: at(2.5), To: at(2.6)}}
		}, evidence.Accounted},
		{"an occurrence that was withdrawn beforehand, and planned again", func(h *evidence.History) {
			h.Records = append(h.Records, evidence.Record{Job: "default/a", Run: "R0", Kind: "schedule", Scheduled: at(3), Outcome: "withdrawn"})
		}, ""},
		{"two at a time", func(h *evidence.History) {
			h.Jobs[0].Occurrences = append(h.Jobs[0].Occurrences, at(1.1))
			ran(h, "R5", "schedule", at(1.1), "0")
		}, evidence.Overlap},
		{"two at a time where two may", func(h *evidence.History) {
			h.Jobs[0].Slots = 2
			h.Jobs[0].Occurrences = append(h.Jobs[0].Occurrences, at(1.1))
			ran(h, "R5", "schedule", at(1.1), "0")
		}, ""},
		{"two at a time of jobs with one lock", func(h *evidence.History) {
			h.Jobs[0].Lock = "pool"
			other := h.Jobs[0]
			other.Name, other.Occurrences = "default/b", []time.Time{at(1.1)}
			h.Jobs = append(h.Jobs, other)
			ran(h, "R5", "schedule", at(1.1), "0")
			h.Records[len(h.Records)-1].Job = "default/b"
			for i := range h.Events[len(h.Events)-2:] {
				h.Events[len(h.Events)-2+i].Job = "default/b"
			}
		}, evidence.Overlap},
		{"an attempt that found its slots taken", func(h *evidence.History) {
			e := h.Events[0]
			e.Kind = evidence.Contended
			h.Events = append(h.Events, e)
		}, evidence.Overlap},
		{"an acknowledged run that is gone", func(h *evidence.History) { drop(h, "H"); silence(h, "H") }, evidence.NothingAcknowledgedIsLost},
		{"an acknowledged outcome that has changed", func(h *evidence.History) { h.Acknowledged["R4"] = "failed" }, evidence.NothingAcknowledgedIsLost},
		{"a start before its time", func(h *evidence.History) { h.Events[0].At = at(0.9) }, evidence.Punctual},
		{"a start that is too late", func(h *evidence.History) { h.Jobs[0].StartWithin = time.Millisecond }, evidence.Punctual},
		{"a late start after a time without a server", func(h *evidence.History) {
			h.Jobs[0].Occurrences[0] = at(0)
			record(h, "R1").Scheduled, h.Events[0].Scheduled, h.Events[1].Scheduled = at(0), at(0), at(0)
			h.Down = []evidence.Span{{From: at(-1), To: at(0.5)}}
		}, ""},
		{"a late start with a time without a server on the way", func(h *evidence.History) {
			h.Jobs[0].Occurrences[0] = at(-0.5)
			record(h, "R1").Scheduled, h.Events[0].Scheduled, h.Events[1].Scheduled = at(-0.5), at(-0.5), at(-0.5)
			h.Down = []evidence.Span{{From: at(-0.2), To: at(0.8)}}
		}, ""},
		{"a start that is later than a time without a server makes it", func(h *evidence.History) {
			h.Jobs[0].Occurrences[0] = at(-0.5)
			record(h, "R1").Scheduled, h.Events[0].Scheduled, h.Events[1].Scheduled = at(-0.5), at(-0.5), at(-0.5)
			h.Down = []evidence.Span{{From: at(-0.2), To: at(0.2)}}
		}, evidence.Punctual},
		{"a success without evidence", func(h *evidence.History) { silence(h, "R1") }, evidence.RecordsAgreeWithTheEvidence},
		{"a failure that was a success", func(h *evidence.History) {
			record(h, "R1").Outcome, record(h, "R1").Attempts = "failed", []string{"failed"}
		}, evidence.RecordsAgreeWithTheEvidence},
		{"a skipped run that started", func(h *evidence.History) { record(h, "R1").Outcome, record(h, "R1").Attempts = "skipped", nil }, evidence.RecordsAgreeWithTheEvidence},
		{"an attempt that the history does not have", func(h *evidence.History) { record(h, "R4").Attempts = []string{"succeeded"} }, evidence.RecordsAgreeWithTheEvidence},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := day()
			test.plant(&h)
			found := evidence.Check(h)
			if test.want == "" {
				if len(found) > 0 {
					t.Fatalf("found %v", found)
				}
				return
			}
			if !slices.ContainsFunc(found, func(v evidence.Violation) bool { return v.Invariant == test.want }) {
				t.Fatalf("found %v, want %s", found, test.want)
			}
		})
	}
}

// On a busy machine a job may be created after the first instant of its schedule.
func TestNothingFallsDueBeforeAJobExists(t *testing.T) {
	created, paused := evidence.Span{From: at(2.5), To: at(3.5)}, evidence.Span{From: at(5.5), To: at(6.5)}
	expect := func(accounted ...float64) []evidence.Violation {
		h := evidence.History{Jobs: []evidence.Job{{Name: "default/a"}}}
		h.Jobs[0].Between(at(1), time.Second, created, paused)
		for _, seconds := range accounted {
			ran(&h, fmt.Sprint("R", seconds), "schedule", at(seconds), "0")
		}
		return evidence.Check(h)
	}
	for _, accounted := range [][]float64{{4, 5}, {3, 4, 5}, {4, 5, 6}} {
		if found := expect(accounted...); len(found) > 0 {
			t.Errorf("runs of %v: %v", accounted, found)
		}
	}
	for _, accounted := range [][]float64{{4}, {5}, {2, 4, 5}} {
		if len(expect(accounted...)) == 0 {
			t.Errorf("runs of %v: no fault is found", accounted)
		}
	}
}
