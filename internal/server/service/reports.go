package service

import (
	"context"
	"errors"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Reports accepts other programs' reports on their work, for jobs with run.external.
type Reports struct {
	*base
	jobs  *Jobs
	store interface {
		Report(ctx context.Context, r store.Report) (store.ReportOutcome, error)
		PutToken(ctx context.Context, p store.PutToken) (store.Token, error)
	}
	tokens Tokens
}

// A ping key is a token that can only report on one job, which its name contains.
const (
	pingRole   = store.Role("ping")
	pingPrefix = "ping:"
)

// pingJob returns the job of a ping key.
func pingJob(t *store.Token) (namespace, name string, ok bool) {
	if t.Role != pingRole || len(t.Name) <= len(pingPrefix)+len(t.Namespace)+1 {
		return "", "", false
	}
	return t.Namespace, t.Name[len(pingPrefix)+len(t.Namespace)+1:], true
}

// Take accepts a report from the holder of a token. Reports with the same non-empty key are
// one report.
func (s *Reports) Take(ctx context.Context, who Caller, name Name, report client.Report, key string) (client.Reported, error) {
	j, err := s.jobs.find(ctx, who, Operate, name)
	if err != nil {
		return client.Reported{}, err
	}
	return s.take(ctx, j, report, key)
}

// RotatePingKey replaces the ping key of a job.
func (s *Reports) RotatePingKey(ctx context.Context, who Caller, name Name) (client.PingKey, error) {
	j, err := s.jobs.find(ctx, who, Define, name)
	if err != nil {
		return client.PingKey{}, err
	}
	if !j.Filled.Run.IsReported() {
		return client.PingKey{}, notReported(j)
	}
	secret, err := auth.NewSecret()
	if err != nil {
		return client.PingKey{}, err
	}
	_, err = s.store.PutToken(ctx, store.PutToken{
		Name: pingPrefix + j.Filled.FullName(), Hash: auth.HashOf(secret), Role: pingRole, Namespace: j.Filled.Namespace, Replace: true, Actor: who.Name,
	})
	s.tokens.Forget()
	if errors.Is(err, store.ErrLimit) {
		return client.PingKey{}, Refuse(client.TypeConflict, phrase.TooManyPingKeys.Of(store.TokensMax))
	}
	return client.PingKey{Key: secret, Path: "/ping/" + secret}, err
}

// Ping takes a report from a caller with the ping key of a job. The report is read when the key is
// known to be valid.
func (s *Reports) Ping(ctx context.Context, key string, read func(context.Context) (client.Report, error)) (client.Reported, error) {
	t, err := s.tokens.ByHash(ctx, auth.HashOf(key))
	if err != nil && !errors.Is(err, auth.ErrUnknown) {
		return client.Reported{}, err
	}
	namespace, name, ok := pingJob(&t)
	if err != nil || !ok {
		return client.Reported{}, Refuse(client.TypeNotFound, phrase.NoPingKey, phrase.MakePingKey)
	}
	j, err := store.JobNamed(ctx, s.jobs.store, namespace, name)
	if errors.Is(err, store.ErrNotFound) {
		return client.Reported{}, Refuse(client.TypeNotFound, phrase.PingJobGone)
	}
	if err != nil {
		return client.Reported{}, err
	}
	report, err := read(ctx)
	if err != nil {
		return client.Reported{}, err
	}
	return s.take(ctx, j, report, "")
}

func notReported(j *store.Job) error {
	return Refuse(client.TypeConflict, phrase.TakesNoReports.Of(j.Filled.FullName()), phrase.ExternalTakes.Of("run: {external: {}}"))
}

// startable refuses a job that Belfry does not start.
func startable(j *store.Job) error {
	if !j.Filled.Run.IsReported() {
		return nil
	}
	return Refuse(client.TypeConflict, phrase.ReportedJob.Of(j.Filled.FullName()))
}

func (s *Reports) take(ctx context.Context, j *store.Job, report client.Report, key string) (client.Reported, error) {
	id, err := s.newID()
	if err != nil {
		return client.Reported{}, err
	}
	r := store.Report{Job: j.Definition.UID, ID: id, Key: key, Run: report.Run, At: report.At, Lock: report.Lock, Starts: report.State == client.ReportStarted}
	r.Result = store.Result{Started: report.Started, Outcome: job.OutcomeSucceeded, Reason: job.Text(report.Reason), ExitCode: report.ExitCode, Signal: report.Signal}
	switch report.State {
	case client.ReportSkipped:
		r.Result.Outcome = job.OutcomeSkipped
	case client.ReportFailed:
		r.Result.Outcome = job.OutcomeFailed
		if r.Result.Reason.IsZero() && report.ExitCode != nil {
			r.Result.Reason = reason.ExitStatus.Of(*report.ExitCode)
		}
		r.Result.Cause = reason.LastLine([]byte(report.Output), false)
	}
	if report.Output != "" {
		if r.Result.Output, r.Result.OutputBytes, err = packed(report.Output, s.now); err != nil {
			return client.Reported{}, err
		}
	}
	got, err := s.store.Report(ctx, r)
	switch {
	case errors.Is(err, store.ErrConflict):
		return client.Reported{}, notReported(j)
	case errors.Is(err, store.ErrNotFound):
		return client.Reported{}, noJob(Name{j.Definition.Namespace, j.Definition.Name})
	case errors.Is(err, store.ErrExists):
		return client.Reported{}, Refuse(client.TypeExists, phrase.JobRunsAlready.Of(j.Filled.FullName()), phrase.WithoutLock)
	}
	return client.Reported{Run: got.Run, Until: got.Until}, err
}

// discardSink receives output beyond the memory limit, which a report never reaches.
type discardSink struct{}

func (discardSink) Append(context.Context, []output.Chunk) error { return nil }

// packed returns output as stores keep it.
func packed(text string, now func() time.Time) (chunks []store.OutputChunk, size int64, err error) {
	c, err := output.New(output.Config{Sink: discardSink{}, Now: now})
	if err != nil {
		return nil, 0, err
	}
	capture := c.Capture(job.ID{}, 1)
	_, _ = capture.Stdout().Write([]byte(text)) // it does not fail
	list, _ := capture.Close()
	for i := range list {
		chunks = append(chunks, store.OutputChunk(list[i]))
	}
	return chunks, int64(len(text)), nil
}
