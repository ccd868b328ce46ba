package service

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Callbacks accepts the results of HTTP jobs with callback: true from the services that have
// accepted the requests.
type Callbacks struct {
	*base
	store interface {
		Handovers(ctx context.Context, q store.HandoverQuery) ([]store.Handover, error)
		Asked(ctx context.Context, list []store.Answer) error
		store.RunLister
		Finish(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error)
		Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) ([]store.OutputChunk, error)
	}
}

// Check refuses a caller without the secret of a handover, before the report is read.
func (s *Callbacks) Check(ctx context.Context, number int64, secret string) error {
	_, err := s.find(ctx, number, secret)
	return err
}

// Take accepts a report with a handover's secret. A repeated report is accepted again.
func (s *Callbacks) Take(ctx context.Context, number int64, secret string, callback client.Callback) error {
	h, err := s.find(ctx, number, secret)
	if err != nil {
		return err
	}
	running, err := s.isRunning(ctx, h)
	if err != nil {
		return err
	}
	if callback.State == client.CallbackRunning {
		if !running {
			return Refuse(client.TypeConflict, phrase.AttemptOver, phrase.EndTheWork)
		}
		return s.store.Asked(ctx, []store.Answer{{Handover: *h, Seen: true}})
	}
	res := store.Result{Attempt: h.Attempt, Started: h.Sent, Outcome: job.OutcomeSucceeded, Reason: job.Text(callback.Reason), ExitCode: callback.ExitCode}
	if callback.State == client.CallbackFailed {
		res.Outcome = job.OutcomeFailed
		if res.Reason.IsZero() && callback.ExitCode != nil {
			res.Reason = reason.ExitStatus.Of(*callback.ExitCode)
		}
	}
	if callback.Output != "" && running {
		if err := s.addOutput(ctx, &res, callback.Output); err != nil {
			return err
		}
	}
	if res.Outcome.Failed() {
		res.Cause = reason.LastLine([]byte(callback.Output), false)
	}
	// Of no session: any node may take the consequences.
	got, err := s.store.Finish(ctx, job.ID{}, []store.Result{res})
	if err != nil {
		return err
	}
	if got[0].Undecided {
		return fmt.Errorf("the attempt is over, and its record is in the history store: %w", store.ErrHistoryAway)
	}
	if !got[0].Accepted {
		return Refuse(client.TypeConflict, phrase.ResultLate)
	}
	return nil
}

// find returns a handover whose secret the caller has.
func (s *Callbacks) find(ctx context.Context, number int64, secret string) (*store.Handover, error) {
	list, err := s.store.Handovers(ctx, store.HandoverQuery{Numbers: []int64{number}, Limit: store.MaxBatch})
	if err != nil {
		return nil, err
	}
	hash := auth.HashOf(secret)
	if len(list) == 0 || list[0].Kind != string(job.WorkHTTP) || subtle.ConstantTimeCompare([]byte(hex.EncodeToString(hash[:])), []byte(list[0].About)) != 1 {
		return nil, Refuse(client.TypeNotFound, phrase.NoCallback, phrase.SecretInHeader.Of(job.HeaderCallbackSecret))
	}
	return &list[0], nil
}

// isRunning reports whether the attempt of a handover has not ended.
func (s *Callbacks) isRunning(ctx context.Context, h *store.Handover) (bool, error) {
	r, err := store.ActiveRun(ctx, s.store, h.Attempt.Run)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && r.State == job.StateRunning && r.Token == h.Attempt.Token, err
}

// addOutput adds output to a result, after the node's output before the handover.
func (s *Callbacks) addOutput(ctx context.Context, res *store.Result, text string) (err error) {
	if res.Output, res.OutputBytes, err = packed(text, s.now); err != nil {
		return err
	}
	var seq int
	var offset int64
	for {
		list, err := s.store.Output(ctx, res.Run, res.Number, seq, chunksPage)
		if err != nil {
			return err
		}
		for i := range list {
			seq, offset = list[i].Seq+1, list[i].Offset+int64(list[i].Bytes)
		}
		if len(list) < chunksPage {
			break
		}
	}
	for i := range res.Output {
		res.Output[i].Run, res.Output[i].Attempt = res.Run, res.Number
		res.Output[i].Seq += seq
		res.Output[i].Offset += offset
	}
	res.OutputBytes += offset
	return nil
}
