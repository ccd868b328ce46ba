package nodebench

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// storeGoal is how many runs a second the store should take from planned to finished.
const storeGoal = 20_000

// life is the benchmark result of the store for one way of use.
type life struct {
	name      string
	runs, raw float64 // a second
}

// lives runs the benchmark of the store's package, which takes runs from planned
// to finished with history in batches of 500, and inserts rows of the same size
// by bare statements just before.
func (b *bench) lives(ctx context.Context) ([]life, error) {
	which, often := "^BenchmarkLife$/^batch=500$", "100x"
	if b.Quick {
		which, often = "^BenchmarkLife$/^batch=1$", "1x" // there is only one such case
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", which, "-benchtime", often, "./store/sqlite")
	var err error
	if cmd.Dir, err = repository(ctx); err != nil {
		return nil, err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("run the benchmark of the store: %w\n%s", err, out)
	}
	return readLives(string(out))
}

// readLives reads what go test prints.
func readLives(out string) ([]life, error) {
	var list []life
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 2 || !strings.HasPrefix(words[0], "BenchmarkLife/") {
			continue
		}
		// The number of processors follows the name.
		name := strings.TrimPrefix(words[0], "BenchmarkLife/")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		l := life{name: name}
		for i := 2; i+1 < len(words); i += 2 {
			value, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return nil, fmt.Errorf("the benchmark of the store says %q", line)
			}
			switch words[i+1] {
			case "runs/s":
				l.runs = value
			case "rawrows/s":
				l.raw = value
			}
		}
		if l.runs == 0 || l.raw == 0 {
			return nil, fmt.Errorf("the benchmark of the store says %q, which has no rates", line)
		}
		list = append(list, l)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the benchmark of the store says nothing:\n%s", out)
	}
	return list, nil
}

// store measures the store without a node.
func (b *bench) store(ctx context.Context) ([]Figure, error) {
	list, err := b.lives(ctx)
	if err != nil {
		return nil, err
	}
	var figures []Figure
	for _, l := range list {
		goal := 0.0
		if l.name == "batch=500" {
			goal = storeGoal
		}
		figures = append(figures, above("runs a second, "+strings.ReplaceAll(l.name, "/", ", "), l.runs, goal).
			beside(number(l.raw, 0)+" bare `INSERT` a second, "+number(l.runs/l.raw, 2)+" of them"))
	}
	return figures, nil
}
