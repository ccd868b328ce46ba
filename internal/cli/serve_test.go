package cli

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/executor/shell"
	"github.com/belfry-cron/belfry/job"
)

// Whoever sets a limit must hear that it is a weaker one, and nobody else.
func TestLimitsOfEachProcessAreToldOfOnce(t *testing.T) {
	plain := &job.Job{Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}
	limited := &job.Job{Run: plain.Run}
	limited.Run.Limits = &job.Limits{CPU: 1}
	for _, c := range []struct {
		features    shell.Features
		memory, cpu int
	}{
		{shell.Features{Memory: "process", CPU: "process"}, 1, 1},
		{shell.Features{Memory: "cgroup", CPU: "process"}, 0, 1},
		{shell.Features{Memory: "cgroup", CPU: "cgroup"}, 0, 0},
	} {
		var said bytes.Buffer
		choose := executorOf(nil, c.features, nil, slog.New(slog.NewTextHandler(&said, nil)))
		choose(plain)
		if said.Len() > 0 {
			t.Errorf("without limits it says:\n%s", said.String())
		}
		choose(limited)
		choose(limited)
		memory, cpu := strings.Count(said.String(), "limit of memory"), strings.Count(said.String(), "limit of CPU")
		if memory != c.memory || cpu != c.cpu {
			t.Errorf("memory by %s, CPU by %s: got %d and %d lines, want %d and %d:\n%s",
				c.features.Memory, c.features.CPU, memory, cpu, c.memory, c.cpu, said.String())
		}
	}
}

func TestADataDirectoryIsToldApartFromOthersOfThisMachine(t *testing.T) {
	of := func(dir string) string {
		t.Helper()
		machine, err := machineOf(dir)
		if err != nil {
			t.Fatal(err)
		}
		return machine
	}
	one, two, link := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(one, link); err != nil {
		t.Fatal(err)
	}
	// Containers of one host have the same boot and may have the same path.
	if of(one) == of(two) {
		t.Errorf("two directories are both %s", of(one))
	}
	if of(one) != of(link) {
		t.Errorf("one directory is %s, and %s by another path", of(one), of(link))
	}
}
