package flow_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/decide/flow"
	"github.com/belfry-cron/belfry/job"
)

// randomUnit has each field or not.
func randomUnit(r *rand.Rand) (u flow.Unit) {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	u.Mark = flow.Mark(pick("", "open", "succeeded", "failed", "skipped", "blocked", "unneeded"))
	u.Outcome = job.Outcome(pick("", "succeeded", "failed", "timed_out", "cancelled", "lost", "skipped"))
	u.Reason = job.Text(pick("", "", "plain", `"quoted" \ and`, "a\nline", "世界, <b>&", "tab\t", "\u2028", "}],{\""))
	u.Attempt, u.Began, u.Ended = r.IntN(3), int64(r.IntN(2))*1795174508463, int64(r.IntN(3)-1)
	if text := pick("", "", "null", "1.50", `"x"`, `{"a":[1,{"b":"}]\""}],"c":null}`, `[]`, `"世"`, "true"); text != "" {
		u.Result = json.RawMessage(text)
	}
	if r.IntN(4) == 0 {
		u.From, u.Run = job.ID{1, byte(r.IntN(256))}, job.ID{byte(1 + r.IntN(255))}
	}
	return u
}

func randomState(r *rand.Rand) *flow.Saved {
	s := &flow.Saved{State: flow.State{Steps: []flow.StepState{}}}
	for range r.IntN(5) {
		step := flow.StepState{Name: strings.Repeat("s", r.IntN(3)) + "_1", Unit: randomUnit(r)}
		for range r.IntN(2) * r.IntN(4) {
			value := [...]string{"null", "1", `"a b"`, `{"x":"y"}`}[r.IntN(4)]
			step.Items = append(step.Items, flow.Item{Unit: randomUnit(r), Value: json.RawMessage(value)})
		}
		s.Steps = append(s.Steps, step)
	}
	u := randomUnit(r)
	s.Cause = [...]string{"", "disk is full", `"世"`}[r.IntN(3)]
	s.Ending, s.EndReason, s.Abandoned, s.Depth = u.Outcome, u.Reason, r.IntN(2) == 0, r.IntN(3)
	if r.IntN(3) == 0 {
		s.Definition = json.RawMessage(`{"name":"f","run":{"flow":{"steps":[]}}}`)
		s.Early = map[string]flow.Early{"go": {By: "ann", Data: json.RawMessage(`{"n":1}`)}}
		s.Again = &flow.Again{Of: job.ID{7}, From: []string{"a"}, Changed: true}
	}
	return s
}

func TestTheStateIsTheJSONOfTheStandardLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		want := randomState(r)
		var others, own flow.Saved
		text := want.Append(nil)
		if err := json.Unmarshal(text, &others); err != nil || !reflect.DeepEqual(&others, want) {
			t.Fatalf("%s is read as %+v, %v; want %+v", text, others, err, want)
		}
		standard, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{text, standard, append([]byte(" "), text...)} {
			if err := own.Read(text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if got := own.Append(nil); string(got) != string(want.Append(nil)) && string(text) != string(standard) {
				t.Fatalf("%s is read as\n%s", text, got)
			}
		}
	}
}

func TestValuesAreWrittenWithoutSpace(t *testing.T) {
	s := &flow.Saved{State: flow.State{Steps: []flow.StepState{{Name: "a", Unit: flow.Unit{Result: json.RawMessage(`{"n": [1,  2], "text": "a b"}`)}}}}}
	if got, want := string(s.Append(nil)), `{"steps":[{"name":"a","result":{"n":[1,2],"text":"a b"}}]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Texts of other programs and damaged ones are left to the standard library.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"steps":null}`, `{"steps":[{"mark":"open","name":"a"}]}`, `{"steps":[{"name":"a","attempt":1.0}]}`, `{"steps":[]} `, `{"steps":[`, `{"steps":[{"name":"a"`,
		`{"steps":[],"depth":1}`, `{"steps":[{"name":"\u0041","items":[{"value":1},{"mark":"open","value":"x"}]}],"again":{"of":"x"}}`,
	} {
		f.Add([]byte(text))
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(randomState(r).Append(nil))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var own, others flow.Saved
		err := own.Read(text)
		if !json.Valid(text) {
			return // damaged in the store
		}
		if otherErr := json.Unmarshal(text, &others); (err == nil) != (otherErr == nil) {
			t.Fatalf("%q: %v, the standard library says %v", text, err, otherErr)
		}
		if err == nil && string(own.Append(nil)) != string(others.Append(nil)) {
			t.Fatalf("%q is read as %+v, want %+v", text, own, others)
		}
	})
}

func BenchmarkState(b *testing.B) {
	s := &flow.Saved{}
	for i := range 10 {
		u := flow.Unit{Mark: flow.Succeeded, Outcome: job.OutcomeSucceeded, Attempt: 1, Began: 1795174508463, Ended: 1795174508500, Result: json.RawMessage(`{"rows":1000,"file":"a"}`)}
		s.Steps = append(s.Steps, flow.StepState{Name: string(rune('a' + i)), Unit: u})
	}
	text := s.Append(nil)
	b.Run("read and append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var own flow.Saved
			if err := own.Read(text); err != nil {
				b.Fatal(err)
			}
			_ = own.Append(make([]byte, 0, 2*len(text)))
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var own flow.Saved
			if err := json.Unmarshal(text, &own); err != nil {
				b.Fatal(err)
			}
			if _, err := json.Marshal(&own); err != nil {
				b.Fatal(err)
			}
		}
	})
}
