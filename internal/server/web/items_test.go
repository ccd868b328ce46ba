package web

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/i18n"
	"github.com/belfry-cron/belfry/job"
)

// nightly is a run of a flow of 60 steps, of which the one before the last has 120 items: part-077 has failed.
func nightly(now time.Time) (*flowProgress, int) {
	r := &client.Run{Job: "data/nightly", State: job.StateDone, Outcome: job.OutcomeFailed, Started: now.Add(-time.Hour), Ended: now}
	plan := &flowPlan{index: map[string]int{}}
	for i := range 60 {
		u := client.StepState{Name: fmt.Sprintf("step_%02d", i), State: stepSucceeded, Outcome: job.OutcomeSucceeded, Started: r.Started, Ended: r.Started.Add(time.Duration(i) * time.Second)}
		plan.steps = append(plan.steps, &job.Step{Name: u.Name})
		r.Steps = append(r.Steps, u)
	}
	load := &r.Steps[58]
	load.State, load.Outcome = stepFailed, job.OutcomeFailed
	for k := range 120 {
		it := client.StepState{State: stepSucceeded, Outcome: job.OutcomeSucceeded, ItemValue: fmt.Sprintf("part-%03d", 120-k), Started: r.Started, Ended: r.Started.Add(time.Duration(k%7) * time.Second)}
		if it.ItemValue == "part-077" {
			it.State, it.Outcome = stepFailed, job.OutcomeFailed
		}
		load.Items = append(load.Items, it)
	}
	return &flowProgress{flowPlan: plan, run: r, critical: make([]bool, 60)}, 58
}

func TestItemsAreListedByValueAndFound(t *testing.T) {
	now := time.Date(2026, 11, 28, 3, 12, 48, 0, time.UTC)
	for query, want := range map[string]string{
		"":                         "11: part-077 part-120 part-119, 109 more",
		"?order=value":             "100: part-001 part-002 part-003, 20 more",
		"?order=slowest":           "100: part-114 part-107 part-100, 20 more",
		"?item=PART-07":            "10: part-077 part-079 part-078, 0 more",
		"?item=nowhere":            "0: , 0 more",
		"?item=part-1&order=value": "21: part-100 part-101 part-102, 0 more",
	} {
		f, i := nightly(now)
		p := &page{lang: i18n.English, now: now, zone: time.UTC, r: httptest.NewRequest("GET", "/runs/x"+query, nil)}
		v := p.items(f, i)
		var names []string
		for _, row := range v.Rows[:min(3, len(v.Rows))] {
			names = append(names, row.Name)
		}
		if got := fmt.Sprintf("%d: %s, %d more", len(v.Rows), strings.Join(names, " "), v.More); got != want {
			t.Errorf("%q lists %s, want %s", query, got, want)
		}
		if v.Counts != "119 succeeded, 1 failed" {
			t.Errorf("it counts %q", v.Counts)
		}
	}
}

func TestALargeFlowListsWhatMatters(t *testing.T) {
	now := time.Date(2026, 11, 28, 3, 12, 48, 0, time.UTC)
	for query, want := range map[string]int{"": 7, "?steps=all": 60} {
		f, _ := nightly(now)
		f.critical[3] = true
		p := &page{lang: i18n.English, now: now, zone: time.UTC, r: httptest.NewRequest("GET", "/runs/x"+query, nil)}
		n := 0
		for i, shown := range p.notable(f, 4) {
			if shown {
				n++
			} else if i == 3 || i == 4 || i >= 55 {
				t.Errorf("%q leaves step %d out", query, i)
			}
		}
		if n != want {
			t.Errorf("%q lists %d steps, want %d", query, n, want)
		}
	}
}

// A retry names the items that it repeats only if they are all that it repeats of what failed.
func TestARetryNamesItsItems(t *testing.T) {
	f, load := nightly(time.Now())
	if n := failedItems(f.run); n != 1 {
		t.Errorf("it repeats %d items", n)
	}
	f.run.Steps[3].State = stepFailed
	if n := failedItems(f.run); n != 0 {
		t.Errorf("beside a step that failed it repeats %d items", n)
	}
	f.run.Steps[3].State = stepSucceeded
	f.run.Steps[load].Items[0].ItemValue = ""
	if name := itemName(&f.run.Steps[load], 0); name != "step_58/0" {
		t.Errorf("an item without a value is named %q", name)
	}
}

func TestARunSaysThatTheStoreLostStepsInEachLanguage(t *testing.T) {
	why := reason.LossNear.Of(time.Date(2026, 11, 28, 2, 4, 37, 0, time.UTC))
	run := client.Run{Unmet: "it wrote no output", StoreLoss: why.String()}
	run.StoreLossCode, run.StoreLossArgs = why.For()
	for lang, want := range map[i18n.Lang]string{i18n.English: "the store lost steps at", i18n.Chinese: "丢失了已确认的步骤"} {
		p := &page{lang: lang, zone: time.UTC, r: httptest.NewRequest("GET", "/runs/x", nil)}
		if got := p.besides(&run); !strings.Contains(got, want) || !strings.Contains(got, run.Unmet) {
			t.Errorf("in %s it says %q", lang, got)
		}
	}
}
