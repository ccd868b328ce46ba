// Package table measures in a minute what needs no server and holds on a busy machine: ratios of
// Belfry to a peer in one run, and allocations. It compares them with the recorded ones.
package table

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/belfry-cron/belfry/bench/cronbench"
	"github.com/belfry-cron/belfry/bench/programbench"
)

// Row is a piece of work: what it costs a peer and Belfry, and the most that Belfry may cost, as a
// multiple of the peer.
type Row struct {
	Work         string
	Unit         string
	Peer, Belfry float64
	Goal         float64
}

// Ratio is how many times as much as the peer it costs Belfry.
func (r *Row) Ratio() float64 { return r.Belfry / r.Peer }

const (
	// jobs are due each second, for this many seconds.
	jobs    = 1000
	seconds = 3
	// cronGoal is from 120 ns beside what robfig needs on this machine.
	cronGoal = 0.02
)

// Measure measures the rows.
func Measure(ctx context.Context) ([]Row, error) {
	libraries := cronbench.Libraries()[:2] // Belfry and robfig
	next, err := cronbench.Next(libraries, []cronbench.Case{{Name: "daily", Expr: "30 2 * * *", Zone: "America/New_York"}}, cronbench.Full)
	if err != nil {
		return nil, err
	}
	costs := map[string]*programbench.Result{}
	for _, name := range []string{"robfig", "light", "memory"} {
		if costs[name], err = inProcess(ctx, name); err != nil {
			return nil, err
		}
	}
	peer, light, memory := costs["robfig"], costs["light"], costs["memory"]
	ns := func(t cronbench.Timing) float64 { return float64(t.Median) }
	used := func(r *programbench.Result) float64 { return float64(r.Used) / float64(time.Microsecond) }
	return []Row{
		{"`Next` of a cron expression, New York", "ns", ns(next[0][1]), ns(next[0][0]), cronGoal},
		{"Go program, light mode: processor time of a run", "µs", used(peer), used(light), 1.2},
		{"Go program with a store: processor time of a run", "µs", used(peer), used(memory), 8},
		{"Go program with a store: allocated in a run", "B", peer.Allocated, memory.Allocated, 4000 / max(1, peer.Allocated)},
	}, nil
}

// inProcess measures a library in a process of its own: this program with its name.
func inProcess(ctx context.Context, library string) (*programbench.Result, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.CommandContext(ctx, program, "-only", library)
	child.Stderr = os.Stderr
	text, err := child.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", library, err)
	}
	var r programbench.Result
	return &r, json.Unmarshal(text, &r)
}

// WriteOne measures a library in this process, and writes its result for the parent.
func WriteOne(ctx context.Context, out io.Writer, library string) error {
	r, err := programbench.Measure(ctx, library, jobs, seconds)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

// Write writes the rows beside recorded ratios, by their work.
func Write(out io.Writer, rows []Row, recorded map[string]float64) {
	fmt.Fprintln(out, "| work | robfig/cron | Belfry | ratio | goal | times the recorded ratio |\n|---|--:|--:|--:|--:|--:|")
	for i := range rows {
		r := &rows[i]
		goal, change := "≤ "+short(r.Goal), "new"
		if r.Ratio() > r.Goal {
			goal = "**" + goal + "**"
		}
		if was := recorded[r.Work]; was > 0 {
			change = short(r.Ratio() / was)
		}
		fmt.Fprintf(out, "| %s | %s %s | %s %s | %s | %s | %s |\n", r.Work, short(r.Peer), r.Unit, short(r.Belfry), r.Unit, short(r.Ratio()), goal, change)
	}
}

// Read returns recorded ratios.
func Read(path string) (recorded map[string]float64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return recorded, json.Unmarshal(text, &recorded)
}

// Record writes the ratios for later runs.
func Record(path string, rows []Row) error {
	recorded := map[string]float64{}
	for i := range rows {
		ratio, _ := strconv.ParseFloat(short(rows[i].Ratio()), 64)
		recorded[rows[i].Work] = ratio
	}
	text, err := json.MarshalIndent(recorded, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// short formats a number with three digits.
func short(v float64) string {
	digits := 0
	for limit := 100.0; v < limit && digits < 4; limit /= 10 {
		digits++
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
