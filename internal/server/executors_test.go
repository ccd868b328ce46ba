package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/executor/shell"
	"github.com/belfry-cron/belfry/job"
)

// Only a server with limits logs that they are weaker.
func TestProcessLimitsAreLoggedOnce(t *testing.T) {
	plain := &job.Job{Run: job.RunSpec{Shell: &job.Shell{Command: "true"}}}
	limited := &job.Job{Run: job.RunSpec{Shell: &job.Shell{Command: "true", Limits: &job.Limits{CPU: 1}}}}
	for _, c := range []struct {
		features    shell.Features
		memory, cpu int
	}{
		{shell.Features{Memory: "process", CPU: "process"}, 1, 1},
		{shell.Features{Memory: "cgroup", CPU: "process"}, 0, 1},
		{shell.Features{Memory: "cgroup", CPU: "cgroup"}, 0, 0},
	} {
		var output bytes.Buffer
		commands := limitAnnouncer{done{}, tellLimits(c.features, slog.New(slog.NewTextHandler(&output, nil)))}
		run := func(j *job.Job) { commands.Run(t.Context(), executor.Attempt{Job: j}, executor.Output{}) }
		run(plain)
		if output.Len() > 0 {
			t.Errorf("without limits it says:\n%s", output.String())
		}
		run(limited)
		run(limited)
		memory, cpu := strings.Count(output.String(), "memory limits"), strings.Count(output.String(), "CPU limits")
		if memory != c.memory || cpu != c.cpu {
			t.Errorf("memory by %s, CPU by %s: got %d and %d lines, want %d and %d:\n%s",
				c.features.Memory, c.features.CPU, memory, cpu, c.memory, c.cpu, output.String())
		}
	}
}

// done is an executor of work that is done.
type done struct{ _ int }

func (done) Run(context.Context, executor.Attempt, executor.Output) executor.Result {
	return executor.Result{Outcome: job.OutcomeSucceeded}
}

func (done) Carries() bool { return false }

func TestExecutorsAreChosenByKindOfWork(t *testing.T) {
	commands, requests := &done{}, &done{}
	registered := executors{job.WorkShell: commands, job.WorkHTTP: requests}
	for name, c := range map[string]struct {
		run  job.RunSpec
		want executor.Executor
	}{
		"a command":                      {job.RunSpec{Shell: &job.Shell{Command: "true"}}, commands},
		"a request":                      {job.RunSpec{HTTP: &job.HTTP{URL: "http://localhost"}}, requests},
		"a handler, which no node has":   {job.RunSpec{Handler: &job.Handler{Name: "report"}}, nil},
		"nothing, as of a later version": {job.RunSpec{}, nil},
	} {
		if got := registered.of(&job.Job{Run: c.run}); got != c.want {
			t.Errorf("%s is executed by %v", name, got)
		}
	}
}

func TestDataDirectoriesOfOneMachineDiffer(t *testing.T) {
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

// The directory of flows is below one in which the users of jobs may write.
func TestTheDirectoryOfFlowsCannotBeTakenBefore(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	data := t.TempDir()
	made := func() string {
		t.Helper()
		dir, err := flowsDir(data)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(dir); err != nil || info.Mode() != os.ModeDir|0o711 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
		return dir
	}
	first := made()
	if again := made(); again != first {
		t.Errorf("after a restart it is %s, and was %s", again, first)
	}
	other, err := flowsDir(t.TempDir())
	if err != nil || other == first {
		t.Errorf("another node has %s, %v", other, err)
	}
	// A directory that has replaced it, as after a restart of the machine, is not used.
	elsewhere := t.TempDir()
	for what, take := range map[string]func(dir string) error{
		"nothing":                         func(string) error { return nil },
		"a link":                          func(dir string) error { return os.Symlink(elsewhere, dir) },
		"a directory that others may use": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777)) },
		"a file":                          func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	} {
		was := made()
		if err := errors.Join(os.Remove(was), take(was)); err != nil {
			t.Fatal(err)
		}
		if now := made(); now == was {
			t.Errorf("%s is used in the place of the directory", what)
		}
	}
}
