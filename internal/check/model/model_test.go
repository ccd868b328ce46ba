//go:build servers

// Package model checks the protocol between nodes and a store with Spin: see docs/model.md.
package model_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/check/sim"
)

// bounds are the variables of a search.
type bounds struct {
	fault                      int
	deaths, edits, weak, steps int
	trace                      int // the run of a trace that is replayed
}

// build makes the program that searches the states of a model, or follows a trace.
func build(t *testing.T, file, trace string, defines ...string) (program string) {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"model.pml": string(text), "trace.h": trace} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{
		append(append([]string{"spin", "-a"}, defines...), "model.pml"),
		{"gcc", "-O2", "-w", "-DSAFETY", "-DNOREDUCE", "-DNOFAIR", "-DVECTORSZ=8192", "-DMEMLIM=8000", "-o", "pan", "pan.c"},
	} {
		c := exec.CommandContext(t.Context(), command[0], command[1:]...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	return filepath.Join(dir, "pan")
}

var (
	violated = regexp.MustCompile(`(?m)^pan:1: assertion violated (.*) \(at depth`)
	complete = regexp.MustCompile(`(?m)^State-vector .* errors: 0$`)
	stored   = regexp.MustCompile(`(?m)^\s*(\d+) states, stored`)
)

// search searches all states within bounds. It returns the failing assertion, or "" for none.
func search(t *testing.T, program string, b bounds) (assertion string) {
	t.Helper()
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), program, "-m2000000", "-E", "-w22")
	c.Dir = dir
	c.Env = append(os.Environ(), fmt.Sprint("FAULT=", b.fault), fmt.Sprint("DEATHS=", b.deaths), fmt.Sprint("EDITS=", b.edits), fmt.Sprint("WEAK=", b.weak), fmt.Sprint("STEPS=", b.steps), fmt.Sprint("TRACE=", b.trace))
	began := time.Now()
	out, err := c.CombinedOutput()
	if found := violated.FindSubmatch(out); found != nil {
		return string(found[1])
	}
	if err != nil || !complete.Match(out) || strings.Contains(string(out), "max search depth too small") {
		t.Fatalf("%+v: %v\n%s", b, err, out)
	}
	t.Logf("%+v: %s states in %s", b, stored.FindSubmatch(out)[1], time.Since(began).Round(time.Second/10))
	return ""
}

// fault is a fault of a model, with the bounds within which the search finds it, and the subject of the
// assertion that fails.
type fault struct {
	name   string
	bounds bounds
	breaks string
}

// protocol has the faults of the protocol between nodes and a store.
var protocol = []fault{
	{"ANY_CURSOR", bounds{edits: 1, weak: 1}, "made"},
	{"NO_FLOOR", bounds{edits: 1, weak: 1}, "made"},
	{"CURSOR_FIRST", bounds{deaths: 1, weak: 1}, "0"},
	{"CLAIM_TWICE", bounds{deaths: 1, weak: 1}, "started"},
	{"RELEASE_BEGUN", bounds{deaths: 1, weak: 1}, "started"},
	{"ANY_EPOCH", bounds{edits: 1, weak: 1}, "withdrawnBefore"},
	{"NO_SLOT", bounds{deaths: 1, weak: 1}, "executing==0"},
	{"FREE_SLOT", bounds{deaths: 1, weak: 1}, "attempt==0"},
	{"NO_FENCE", bounds{deaths: 1, weak: 1}, "executing!="},
	{"FENCE_FROM_ANSWER", bounds{deaths: 1, weak: 1}, "executing!="},
	{"REAP_ENDED", bounds{deaths: 1, weak: 1}, "0"},
	{"ANY_CLAIM", bounds{deaths: 1, weak: 1}, "holder"},
	{"START_LATE", bounds{deaths: 1, weak: 1}, "executing!="},
	{"RETRY_FOREVER", bounds{deaths: 1, weak: 1}, "attempt+1"},
	{"FORGET_RESULT", bounds{deaths: 1, weak: 1}, "0"},
	{"MISS_ANY", bounds{deaths: 1, weak: 1}, "absent"},
	{"FENCED_FORGOTTEN", bounds{deaths: 1, weak: 1}, "started"},
}

// handovers has the faults of attempts that are handed over.
var handovers = []fault{
	{"SESSION_KEPT", bounds{deaths: 1}, "begun"},
	{"SENT_FIRST", bounds{deaths: 1}, "request[token]"},
	{"SENT_AGAIN", bounds{deaths: 1}, "begun"},
	{"ANY_TOKEN", bounds{deaths: 1}, "token==t"},
	{"GIVEN_BACK", bounds{deaths: 1}, "begun"},
	{"SENT_LATE", bounds{deaths: 1}, "working"},
	{"NOTED_LATE", bounds{deaths: 1}, "working"},
	{"ENDED_UNTOLD", bounds{deaths: 1}, "working"},
}

// clocks has the faults of the clock that nodes agree on, for two nodes.
var clocks = []fault{
	{"COUNTS_AT_ONCE", bounds{steps: 2}, "off"},
	{"WALL_LEADS", bounds{steps: 2}, "shared"},
	{"AHEAD_WINS", bounds{steps: 2}, "off"},
	{"KEEPS_AGE", bounds{steps: 2}, "off"},
	{"WORKS_OFF", bounds{steps: 2}, "shared"},
}

// isLarge reports whether the bounds of the long tests apply.
func isLarge() bool { return os.Getenv("BELFRY_MODEL") == "large" }

// holds searches all states of a model within bounds: no assertion fails.
func holds(t *testing.T, program string, all ...bounds) {
	t.Helper()
	for _, b := range all {
		if assertion := search(t, program, b); assertion != "" {
			t.Errorf("%+v: violated: %s", b, assertion)
		}
	}
}

// finds searches for each fault.
func finds(t *testing.T, program string, faults []fault) {
	t.Helper()
	for i, f := range faults {
		b := f.bounds
		b.fault = 1 + i
		if assertion := search(t, program, b); !strings.Contains(assertion, f.breaks) {
			t.Errorf("%s: violated: %q, want one with %q", f.name, assertion, f.breaks)
		}
	}
}

// TestProtocol searches all states of the protocol within small bounds, and within larger ones with
// BELFRY_MODEL=large. It must find each deliberate fault.
func TestProtocol(t *testing.T) {
	t.Parallel()
	program := build(t, "protocol.pml", "")
	all := []bounds{{deaths: 1, weak: 1}, {edits: 1, weak: 1}}
	if isLarge() {
		all = append(all, bounds{deaths: 1, edits: 1, weak: 1}, bounds{deaths: 2, weak: 1}, bounds{weak: 2})
	}
	holds(t, program, all...)
	finds(t, program, protocol)
}

// TestHandovers does the same with attempts that a service does outside.
func TestHandovers(t *testing.T) {
	t.Parallel()
	program := build(t, "handovers.pml", "")
	holds(t, program, bounds{}, bounds{deaths: 1}, bounds{deaths: 3})
	finds(t, program, handovers)
	if isLarge() {
		holds(t, build(t, "handovers.pml", "", "-DNODES=3"), bounds{deaths: 3})
	}
}

// TestClocks does the same with the clock of one to three nodes.
func TestClocks(t *testing.T) {
	t.Parallel()
	holds(t, build(t, "clocks.pml", "", "-DNODES=1"), bounds{steps: 3})
	two := build(t, "clocks.pml", "", "-DNODES=2")
	holds(t, two, bounds{steps: 4})
	finds(t, two, clocks)
	three := build(t, "clocks.pml", "", "-DNODES=3")
	holds(t, three, bounds{steps: 1, deaths: 1}, bounds{steps: 2})
	if isLarge() {
		holds(t, three, bounds{steps: 2, deaths: 1})
	}
}

// TestFaultsHaveTheirNumbers compares the lists of faults with the files.
func TestFaultsHaveTheirNumbers(t *testing.T) {
	for file, faults := range map[string][]fault{"protocol.pml": protocol, "handovers.pml": handovers, "clocks.pml": clocks} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range faults {
			if !regexp.MustCompile(fmt.Sprintf(`(?m)^#define %s +%d\b`, f.name, 1+i)).Match(text) {
				t.Errorf("%s does not give %s the number %d", file, f.name, 1+i)
			}
		}
	}
}

// TestTracesAreOfTheModel replays what the store of the simulation did to the runs of a job: the
// model must permit each step, and must refuse a forbidden one.
func TestTracesAreOfTheModel(t *testing.T) {
	t.Parallel()
	const runs = 100
	worlds := 2
	if isLarge() {
		worlds = 20
	}
	for seed := range worlds {
		steps, err := sim.Trace(uint64(1+seed), time.Hour/2, "retry", runs)
		if err != nil {
			t.Fatal(err)
		}
		if !isOfModel(t, steps, runs) {
			t.Errorf("world %d: the %d steps are none of the model", 1+seed, len(steps))
		}
		// The last claim is repeated by another node.
		i := len(steps) - 1
		for steps[i].Kind != sim.Claimed {
			i--
		}
		twice := append(slices.Clone(steps[:i+1]), sim.TraceStep{Kind: sim.Claimed, Node: (steps[i].Node + 1) % nodes, Run: steps[i].Run})
		if isOfModel(t, twice, runs) {
			t.Errorf("world %d: the model lets two nodes claim a run", 1+seed)
		}
	}
}

// TestHandoversAreOfTheModel does the same with runs that a service does outside, one by one.
func TestHandoversAreOfTheModel(t *testing.T) {
	t.Parallel()
	worlds, most := 1, 40
	if isLarge() {
		worlds, most = 10, 100
	}
	for seed := range worlds {
		steps, err := sim.Trace(uint64(1+seed), time.Hour/2, "handed", most)
		if err != nil {
			t.Fatal(err)
		}
		byRun := make([][]sim.TraceStep, most)
		kinds := map[sim.TraceKind]int{}
		for _, s := range steps {
			if s.Kind == sim.Created || s.Kind == sim.Joined || s.Kind == sim.Skipped || s.Kind == sim.Missed {
				continue // not of this model
			}
			kinds[s.Kind]++
			byRun[s.Run] = append(byRun[s.Run], s)
		}
		t.Logf("world %d: %v", 1+seed, kinds)
		// A node gives back what it has handed over, another one declares it lost, and the service ends it after that.
		over := []sim.TraceStep{{Kind: sim.Claimed}, {Kind: sim.HandedOver}}
		allowed := len(byRun)
		byRun = slices.Concat(byRun, [][]sim.TraceStep{
			append(slices.Clone(over), sim.TraceStep{Kind: sim.Released}), append(slices.Clone(over), sim.TraceStep{Kind: sim.Lost}),
			{{Kind: sim.Claimed}, {Kind: sim.Succeeded}}, append(slices.Clone(over), sim.TraceStep{Kind: sim.HandedOver, Node: 1}),
		})
		trace, begins := "", []string{"0"}
		var all []sim.TraceStep
		for _, run := range byRun {
			all = append(all, run...)
			begins = append(begins, strconv.Itoa(len(all)))
		}
		trace = arrays(all) + fmt.Sprintf("static short begins[] = {%s};\n", strings.Join(begins, ","))
		program := build(t, "handovers.pml", trace, "-DREPLAY", fmt.Sprint("-DNODES=", nodes), "-DATTEMPTS=3", fmt.Sprint("-DTOKENS=", claimsMax))
		for i, run := range byRun {
			claims := 0
			for _, s := range run {
				if s.Kind == sim.Claimed {
					claims++
				}
			}
			if claims > claimsMax {
				continue
			}
			if followed := search(t, program, bounds{trace: i}) != ""; followed != (i < allowed) {
				t.Errorf("world %d, run %d: the model allows %v: %v, want %v", 1+seed, i, run, followed, i < allowed)
			}
		}
	}
}

// claimsMax bounds the claims of a run that is replayed.
const claimsMax = 6

// nodes is the number of nodes in the simulation.
const nodes = 5

// arrays returns a trace as C.
func arrays(steps []sim.TraceStep) (trace string) {
	list := func(value func(sim.TraceStep) int) string {
		var text []string
		for _, s := range steps {
			text = append(text, strconv.Itoa(value(s)))
		}
		return strings.Join(text, ",")
	}
	for name, value := range map[string]func(sim.TraceStep) int{
		"kinds": func(s sim.TraceStep) int { return int(s.Kind) },
		"nodes": func(s sim.TraceStep) int { return s.Node },
		"runs":  func(s sim.TraceStep) int { return s.Run },
	} {
		trace += fmt.Sprintf("static unsigned char %s[] = {%s};\n", name, list(value))
	}
	return trace
}

func isOfModel(t *testing.T, steps []sim.TraceStep, runs int) bool {
	t.Helper()
	program := build(t, "protocol.pml", arrays(steps), "-DREPLAY", fmt.Sprint("-DNODES=", nodes), fmt.Sprint("-DOCCURRENCES=", runs), "-DATTEMPTS=3", "-DSESSIONS=255")
	return search(t, program, bounds{}) != ""
}
