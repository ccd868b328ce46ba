package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/torture/check"
)

func TestAPlanDependsOnItsSeed(t *testing.T) {
	one, same, other := plan(1, 10*time.Minute, 0), plan(1, 10*time.Minute, 0), plan(2, 10*time.Minute, 0)
	if !reflect.DeepEqual(one, same) || reflect.DeepEqual(one, other) {
		t.Error("the plan is not one of its seed")
	}
	kinds := map[string]bool{}
	var last time.Duration
	for _, f := range one {
		kinds[f.Kind] = true
		if f.At < last || f.At+f.Length+quiet > 10*time.Minute {
			t.Errorf("%s at %s for %s: the one before ends at %s", f.Kind, f.At, f.Length, last)
		}
		last = f.At + f.Length
	}
	if len(kinds) != 11 {
		t.Errorf("ten minutes have %d kinds of faults, want all 11", len(kinds))
	}
}

// TestTheShortForm runs the whole tool on two systems, one of which is described by commands, and judges its
// evidence again. It asks for nothing that a busy machine cannot give.
func TestTheShortForm(t *testing.T) {
	dir := t.TempDir()
	description := filepath.Join(dir, "own.json")
	text, err := json.Marshal(commands{
		Name: "own", Version: "echo version 7", Nodes: 1, Every: "1s", NoOverlap: true,
		Start: `exec "$TORTURE_DIR/../bin/robfig" -jobs "$TORTURE_JOBS" -name "$TORTURE_NODE"`,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(description, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := build(filepath.Join(dir, "bin"), "./peers/robfig"); err != nil {
		t.Fatal(err)
	}
	o := &options{out: dir, seed: 1, length: 5 * time.Second, settle: time.Second, disk: "64m", generic: description,
		limits: check.Limits{Tolerance: 5 * time.Millisecond, Grace: time.Minute, Limit: time.Minute}}
	found := map[string]*system{}
	for _, s := range systems(o) {
		found[s.Name] = s
	}
	t.Run("systems", func(t *testing.T) {
		for _, name := range []string{"robfig", "own"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, own := *found[name], *o
				s.Nodes = 1 // fewer processes
				e, r, err := torture(t.Context(), &own, &s)
				// A machine that stood still has given the system no time.
				for ; err == nil && r.Runs == 0 && own.length < time.Minute; e, r, err = torture(t.Context(), &own, &s) {
					own.length *= 2
				}
				if err != nil {
					t.Fatal(err)
				}
				if r.Runs == 0 || r.Targets == 0 || r.Count(check.Unexplained)+r.Count(check.Unasked) > 0 {
					t.Errorf("%d runs, %d targets, found %v", r.Runs, r.Targets, r.Findings)
				}
				if len(e.Faults) == 0 || e.Faults[0].From.IsZero() || strings.HasPrefix(e.Faults[0].Left, "failed") {
					t.Errorf("faults: %+v", e.Faults)
				}
			})
		}
	})
	if err := rejudge(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"report.md": "| own | version 7 | 1 |", "report.html": "<td>own</td>", "own.svg": "<svg "} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not contain %q, error %v", name, want, err)
		}
	}
}

// TestThePagesNameSystemsAndFlagsThatThereAre reads the commands of the pages, of which the one outside of this module may be missing.
func TestThePagesNameSystemsAndFlagsThatThereAre(t *testing.T) {
	known := map[string]bool{}
	for _, s := range systems(&options{}) {
		known[s.Name] = true
	}
	commands := 0
	for _, page := range []string{"README.md", "../docs/torture.md", "../docs/how-we-know.md"} {
		text, err := os.ReadFile(page)
		if os.IsNotExist(err) && page != "README.md" {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			var names string
			switch words := strings.Fields(line); {
			case strings.HasPrefix(line, "make torture"), strings.HasPrefix(line, "make soak"):
				for _, w := range words {
					if key, value, _ := strings.Cut(w, "="); key == "SYSTEMS" || key == "SOAKED" {
						names = value
					}
				}
			case strings.HasPrefix(line, "go run ."), strings.HasPrefix(line, "go -C torture run ."):
				flags, systems, _, _ := (&options{stores: map[string]string{}}).flags()
				if err := flags.Parse(words[slices.Index(words, ".")+1:]); err != nil {
					t.Errorf("%s: %s: %v", page, line, err)
				}
				names = *systems
			default:
				continue
			}
			commands++
			for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' }) {
				if !known[name] && name != "mine" { // which the page describes
					t.Errorf("%s: %s: there is no system %s", page, line, name)
				}
			}
		}
	}
	if commands < 5 {
		t.Errorf("only %d commands were found", commands)
	}
}

// TestMissingWithoutANode: only what fell due while all nodes were dead counts so.
func TestMissingWithoutANode(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	missing := func(s int) check.Finding { return check.Finding{Kind: check.Missing, At: at(s)} }
	p := part{&evidence{Nodes: 3, Faults: []fault{{Kind: faultAll, From: at(10), To: at(20)}, {Kind: faultKill, From: at(30), To: at(40)}}},
		&check.Result{Findings: []check.Finding{missing(9), missing(10), missing(19), missing(20), missing(35), {Kind: check.Late, At: at(15)}}}}
	if got := p.missingWithoutNode(); got != 2 {
		t.Errorf("of three nodes: %d, want 2", got)
	}
	p.Nodes = 1
	if got := p.missingWithoutNode(); got != 3 {
		t.Errorf("of one node: %d, want 3", got)
	}
}
