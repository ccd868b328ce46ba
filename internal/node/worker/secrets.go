package worker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

const (
	// secretsWithin is how long an attempt waits for a source of secrets.
	secretsWithin = 30 * time.Second
	// secretsPatience is how long reading is retried before the attempt is postponed, so that people
	// see why it does not start, and another node may claim it.
	secretsPatience = time.Second
	// secretsAgain is the wait after a failure to read them, which doubles.
	secretsAgain = 250 * time.Millisecond
)

// secretValues are the secrets of an attempt; reading begins at its claim.
type secretValues struct {
	done   chan struct{} // closed once the other fields are set
	values map[string]string
	err    error
}

// fetch reads the secrets of an attempt until it has them or its context ends.
func (w *Worker) fetch(ctx context.Context, it *item, names []string) *secretValues {
	f := &secretValues{done: make(chan struct{})}
	of := work.SecretsOf{Session: w.Self.ID, Attempt: it.Attempt, Namespace: it.With.job.Filled.Namespace, Names: names}
	go func() {
		defer close(f.done)
		if w.Secrets == nil {
			f.err = errors.New("this node has no secrets")
			return
		}
		ctx, cancel := context.WithTimeout(ctx, secretsWithin)
		defer cancel()
		began := time.Now()
		for pause := secretsAgain; ; pause *= 2 {
			values, err := w.Secrets(ctx, of)
			if err == nil || errors.As(err, new(*secret.Missing)) {
				f.values, f.err = values, err
				return
			}
			if ctx.Err() == nil || f.err == nil {
				f.err = err // after the end, every answer reports the end
			}
			if time.Since(began)+pause > secretsPatience {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}()
	return f
}

// withSecrets runs an attempt only with all its secrets. It masks output and reasons.
func (w *Worker) withSecrets(p *preparedAttempt) executor.Result {
	<-p.secrets.done
	values, err := p.secrets.values, p.secrets.err
	switch {
	case errors.As(err, new(*secret.Missing)):
		return executor.Result{Outcome: job.OutcomeFailed, Reason: reason.SecretsRefuse.Of(reason.Words(err.Error()))}
	case err != nil:
		p.postponed = true
		return executor.Result{Unstarted: true, Reason: reason.SecretsFailed.Of(reason.Words(err.Error()))}
	}
	p.attempt.Data.Secrets = values
	mask := secret.MaskOf(values)
	if mask == nil {
		return w.safely(p, executor.Output{Stdout: p.capture.Stdout(), Stderr: p.capture.Stderr()})
	}
	stdout, stderr := mask.Writer(p.capture.Stdout()), mask.Writer(p.capture.Stderr())
	ended := w.safely(p, executor.Output{Stdout: stdout, Stderr: stderr})
	_, _ = stdout.Close(), stderr.Close() // writes to captures succeed
	ended.Reason, ended.Cause = ended.Reason.Map(mask.Text), mask.Text(ended.Cause)
	ended.Value = maskedJSON(mask, ended.Value)
	return ended
}

// maskedJSON masks a result and keeps it valid JSON.
func maskedJSON(mask *secret.Mask, value []byte) []byte {
	if value == nil {
		return nil
	}
	masked := []byte(mask.Text(string(value)))
	if !json.Valid(masked) { // the mask replaced a number
		masked, _ = json.Marshal(secret.Masked) // a text always encodes
	}
	return masked
}
