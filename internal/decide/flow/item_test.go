package flow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/job"
)

func TestAnItemIsKnownByItsValue(t *testing.T) {
	for value, want := range map[string]string{
		`"part-077"`:                         "part-077",
		`12`:                                 "12",
		`1234567`:                            "1234567",
		`true`:                               "true",
		`{"region": "eu", "name": "part"}`:   "part",
		`{"z": "last", "a": 3}`:              "3",
		`{"a": [1], "b": ""}`:                `{"a": [1], "b": ""}`,
		`[1, 2]`:                             "[1, 2]",
		`not JSON`:                           "",
		`"` + strings.Repeat("空", 100) + `"`: strings.Repeat("空", 39) + "…",
	} {
		it := flow.Item{Value: json.RawMessage(value)}
		if got := it.Name(); got != want {
			t.Errorf("%s is known as %q, want %q", value, got, want)
		}
	}
}

func TestAStepThatHasEndedBeganWithItsFirstAttempt(t *testing.T) {
	for _, c := range []struct{ made, began, ended, want int64 }{{10, 0, 30, 10}, {10, 20, 30, 20}, {10, 40, 30, 30}} {
		s := flow.State{Steps: []flow.StepState{{Name: "a", Unit: flow.Unit{Mark: flow.Open, Began: c.made}}}}
		s.End(flow.Ref{Step: 0, Item: -1}, flow.End{Outcome: job.OutcomeSucceeded, Began: c.began, At: c.ended})
		if got := s.Steps[0].Began; got != c.want {
			t.Errorf("made at %d, started at %d and ended at %d it began at %d, want %d", c.made, c.began, c.ended, got, c.want)
		}
	}
}
