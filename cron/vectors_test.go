package cron

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// vectors are expressions with the occurrences that a brute-force oracle found
// for them, and expressions that are refused.
type vectors struct {
	Vectors []vector `json:"vectors"`
	Errors  []struct {
		ID, Dialect, Expr, Reason string
	} `json:"errors"`
}

type vector struct {
	ID, Dialect, Expr, TZ, DST, Note string
	From                             time.Time
	Next, Prev                       []time.Time
	Exhausted                        bool
}

func readVectors(t testing.TB) vectors {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Vectors) == 0 || len(v.Errors) == 0 {
		t.Fatal("testdata/vectors.json holds no vectors")
	}
	return v
}

// dialectOf returns the dialect that a vector names; "ext" is the default one.
func dialectOf(t testing.TB, name string) Dialect {
	t.Helper()
	if name == "ext" {
		return Default
	}
	d, err := ParseDialect(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// compile parses the expression of a vector.
func (v vector) compile(t testing.TB) *Expression {
	t.Helper()
	zone, err := LoadZone(v.TZ)
	if err != nil {
		t.Fatal(err)
	}
	change, err := ParseClockChange(v.DST)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Parse(v.Expr, In(zone), WithDialect(dialectOf(t, v.Dialect)), WithClockChange(change))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestVectors(t *testing.T) {
	for _, v := range readVectors(t).Vectors {
		t.Run(v.ID, func(t *testing.T) {
			e := v.compile(t)
			follow(t, v, "next", e.Next, v.Next, v.Exhausted)
			follow(t, v, "prev", e.Prev, v.Prev, false)
		})
	}
}

// follow steps from occurrence to occurrence and compares.
func follow(t *testing.T, v vector, direction string, step func(time.Time) time.Time, want []time.Time, exhausted bool) {
	t.Helper()
	at := v.From
	for i, w := range want {
		got := step(at)
		if !got.Equal(w) {
			t.Fatalf("%s %d of %q in %s (%s) after %s: got %s, want %s: %s",
				direction, i, v.Expr, v.TZ, v.DST, at.Format(time.RFC3339), got.Format(time.RFC3339), w.Format(time.RFC3339), v.Note)
		}
		if _, offset := got.Zone(); w.Format("-07:00") != got.Format("-07:00") {
			t.Fatalf("%s: offset %d, want that of %s", got, offset, w)
		}
		at = got
	}
	if exhausted {
		if got := step(at); !got.IsZero() {
			t.Fatalf("%s of %q after its last occurrence: got %s, want none", direction, v.Expr, got)
		}
	}
}

func TestRefusedExpressions(t *testing.T) {
	for _, refused := range readVectors(t).Errors {
		t.Run(refused.ID, func(t *testing.T) {
			e, err := Parse(refused.Expr, WithDialect(dialectOf(t, refused.Dialect)))
			if err == nil {
				t.Fatalf("%q (%s) was accepted as %q, want an error: %s", refused.Expr, refused.Dialect, e, refused.Reason)
			}
			t.Log(err)
		})
	}
}
