package nodebench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// apply measures belfry apply of one file with many jobs: when all of them are new,
// when all are changed, and when none is. Command and server share the processors.
func (b *bench) apply(ctx context.Context) ([]Figure, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "data")
	s, err := b.serve(ctx, data)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	n := b.scaled(appliedAtOnce, 100)
	now := time.Now()
	var figures []Figure
	for _, round := range []struct{ what, command string }{
		{"new", "/usr/local/bin/report --for customer --number 17"},
		{"changed", "/usr/local/bin/report --for customer --number 18"},
		{"unchanged", "/usr/local/bin/report --for customer --number 18"},
	} {
		file := filepath.Join(dir, "jobs.yaml")
		if err := writeJobs(file, n, now, round.command); err != nil {
			return nil, err
		}
		var command time.Duration
		made, err := s.making(func() (_ int, took time.Duration, err error) {
			took, command, err = b.applyFile(ctx, data, file)
			return n, took, err
		})
		if err != nil {
			return nil, err
		}
		each := command / time.Duration(n)
		figures = append(figures, above(round.what+" jobs of one file, a second", made.rate, b.scaledGoal(appliedGoal)).
			beside(fmt.Sprintf("%s of a processor each: server %s, command %s", times(made.own+each), times(made.own), times(each))))
	}
	return figures, s.stop()
}

// writeJobs writes a file with n jobs, with the fields that most jobs have.
func writeJobs(file string, n int, now time.Time, command string) error {
	documents := make([]job.Document, n)
	timeout, attempts := job.Duration(10*time.Minute), 3
	for i := range documents {
		j := teamJob(i, now)
		j.Run.Shell.Command = command
		j.Schedule.Timezone = "Europe/Berlin"
		j.Policy = job.Policy{Timeout: &timeout, Retry: &job.Retry{Attempts: &attempts}}
		documents[i] = job.Document{Kind: job.KindJob, Job: j}
	}
	var text bytes.Buffer
	if err := job.Encode(&text, documents, job.YAML); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o600)
}

// applyFile runs belfry apply. It returns the elapsed time, and the processor time of the command.
func (b *bench) applyFile(ctx context.Context, data, file string) (took, worked time.Duration, err error) {
	cmd := exec.CommandContext(ctx, b.server, "apply", "-f", file, "--data", data, "--output", "name")
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took = time.Since(began)
	if err != nil {
		return 0, 0, fmt.Errorf("belfry apply: %w\n%s", err, out[:min(len(out), outputShown)])
	}
	return took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// outputShown bounds the shown output of a failed command.
const outputShown = 4 << 10
