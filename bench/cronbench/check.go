package cronbench

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
)

// vector is an expression and its occurrences.
type vector struct {
	Group, Dialect, Expr, TZ, DST string
	From                          time.Time
	Next                          []time.Time
	Exhausted                     bool
}

// Vectors are expressions with occurrences that a brute-force oracle found.
type Vectors []vector

// ReadVectors reads testdata/vectors.json of package cron.
func ReadVectors(path string) (Vectors, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct{ Vectors Vectors }
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return file.Vectors, nil
}

// Part is a part of the vectors that all libraries of a dialect could be right
// about.
type Part struct {
	Name string
	has  func(v *vector) bool
}

// Parts returns the parts: by what the clocks do.
func Parts() []Part {
	atChange := func(v *vector) bool { return strings.HasPrefix(v.Group, "dst/") || v.Group == "quartz/dst" }
	return []Part{
		{"away from changes of the clock", func(v *vector) bool { return v.TZ == "UTC" }},
		{"around changes of the clock", atChange},
	}
}

// Score counts a library's results for the vectors.
type Score struct {
	Right   int
	Wrong   int // another answer
	Refused int // refused expressions
	Panics  int
	Hangs   int // no answer within patience, or further vectors of a zone that hung
}

// Total is the number of vectors.
func (s Score) Total() int { return s.Right + s.Wrong + s.Refused + s.Panics + s.Hangs }

// patience bounds an answer. A search that hangs cannot be ended and burns a processor until the
// program ends: check after measuring.
const patience = 3 * time.Second

// Check compares the answers of a library with the vectors of its dialect. The rule for clock
// changes is cron's, or in the quartz dialect the rule of Java's Quartz.
func Check(library Library, vectors Vectors, part Part) (Score, error) {
	var score Score
	hung := map[string]bool{} // zones
	for i := range vectors {
		v := &vectors[i]
		rule := "vixie"
		if library.Dialect == "quartz" && v.TZ != "UTC" {
			rule = "skip_last"
		}
		if v.Dialect != library.Dialect || !part.has(v) || len(v.Next) == 0 && !v.Exhausted || v.TZ != "UTC" && v.DST != rule {
			continue
		}
		zone, err := cron.LoadZone(v.TZ)
		if err != nil {
			return score, err
		}
		if hung[v.TZ] {
			score.Hangs++
			continue
		}
		answer := make(chan outcome, 1)
		go func() { answer <- ask(library, v, zone) }()
		select {
		case o := <-answer:
			o.count(&score)
		case <-time.After(patience):
			hung[v.TZ] = true
			score.Hangs++
		}
	}
	return score, nil
}

type outcome int

const (
	right outcome = iota
	wrong
	refused
	panicked
)

func (o outcome) count(s *Score) {
	*[...]*int{right: &s.Right, wrong: &s.Wrong, refused: &s.Refused, panicked: &s.Panics}[o]++
}

// ask follows one vector from occurrence to occurrence.
func ask(library Library, v *vector, zone *cron.Zone) (o outcome) {
	defer func() {
		if recover() != nil {
			o = panicked
		}
	}()
	search, err := library.Compile(v.Expr, zone)
	if err != nil {
		return refused
	}
	at := v.From.In(zone.Location())
	for _, want := range v.Next {
		if at = search(at); !at.Equal(want) {
			return wrong
		}
	}
	if v.Exhausted && !search(at).IsZero() {
		return wrong
	}
	return right
}
