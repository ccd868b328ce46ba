package joined

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// shipEvery is the longest wait of a record while history is reachable: a batch gathers in that
	// time.
	shipEvery = 200 * time.Millisecond
	// lookEvery is the interval for measuring the outbox, also while shipping pauses.
	lookEvery = time.Second
	// restMin and restMax bound the backoff of shipping while history is unreachable.
	restMin, restMax = 100 * time.Millisecond, 30 * time.Second
	// outputRest is the pause before output that history has refused is tried again: long
	// enough that a passing fault is over.
	outputRest = 30 * time.Second
	// refusedText is the longest text in a record after history has refused it.
	refusedText = 4096
)

// Run ships until ctx ends.
func (s *Store) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait(ctx, lookEvery) {
			if err := s.look(ctx); err != nil && ctx.Err() == nil {
				s.opt.Log.Warn("the outbox cannot be measured", "error", err)
			}
		}
	}()
	rest, away := restMin, s.Status().Away != nil
	for pause := shipEvery; wait(ctx, pause); {
		more, err := s.shipInTurn(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if !away {
				s.opt.Log.Error("history cannot be written: records wait in the control store", "error", err)
			}
			pause, rest, away = rest/2+rand.N(rest/2+1), min(2*rest, restMax), true
			continue
		case away:
			away = false
			s.opt.Log.Info("history is written again")
		}
		if pause, rest = shipEvery, restMin; more {
			pause = 0
		}
	}
	<-done
}

// wait waits, and reports whether ctx is alive.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Ship appends the next batch to history and removes it from the outbox. It reports whether
// there may be more.
func (s *Store) Ship(ctx context.Context) (more bool, err error) {
	if err := s.gate.meet(ctx); err != nil {
		return false, s.note(err)
	}
	if err := s.shipOutput(ctx); err != nil {
		return false, s.note(err)
	}
	entries, err := s.Ended(ctx, store.ConsumerHistory, "", store.MaxBatch)
	if err != nil {
		return false, fmt.Errorf("outbox: %w", err)
	}
	if len(entries) == 0 {
		return false, s.askAgain(ctx)
	}
	records, refs := make([]store.Record, len(entries)), make([]store.FeedRef, len(entries))
	for i := range entries {
		records[i], refs[i] = entries[i].Record, entries[i].Ref
	}
	if err := s.note(s.append(ctx, records)); err != nil {
		return false, err
	}
	if err := s.Taken(ctx, store.ConsumerHistory, refs); err != nil {
		return false, fmt.Errorf("outbox: %w", err)
	}
	return len(entries) == store.MaxBatch, s.look(ctx)
}

// ShipAll ships until no records and no output wait. It fails if history refuses the output.
func (s *Store) ShipAll(ctx context.Context) error {
	for refused := false; ; {
		more, err := s.Ship(ctx)
		if err != nil {
			return err
		}
		switch {
		case more:
		case s.spool.isEmpty():
			return nil
		case refused && s.outputError() != nil:
			return s.outputError()
		default:
			refused = s.outputError() != nil
			s.mu.Lock()
			s.refusing.at = time.Time{} // the next try needs no pause
			s.mu.Unlock()
		}
	}
}

// shipInTurn is Ship if it is the turn of this node, or else ships only its output.
func (s *Store) shipInTurn(ctx context.Context) (more bool, err error) {
	s.mu.Lock()
	turn := s.turn
	s.mu.Unlock()
	if turn {
		return s.Ship(ctx)
	}
	if err := s.gate.meet(ctx); err != nil {
		return false, s.note(err)
	}
	if err := s.shipOutput(ctx); err != nil {
		return false, s.note(err)
	}
	return false, s.askAgain(ctx)
}

// askAgain checks whether an unreachable history is back, when there is nothing to ship.
func (s *Store) askAgain(ctx context.Context) error {
	if s.Status().Away == nil {
		return nil
	}
	_, err := s.HistoryID(ctx)
	return s.note(err)
}

// note records the error of a write to history.
func (s *Store) note(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
	return err
}

// append appends records. If history refuses some for their content, each is tried alone, then cut
// to a size that any store accepts, and finally put aside, so that the rest need not wait. If
// history accepts none of them, it may refuse all for another reason, such as a missing permission
// or table: then they wait.
func (s *Store) append(ctx context.Context, records []store.Record) error {
	err := s.History.Append(ctx, records)
	if err == nil || !isRefusal(ctx, err) {
		return err
	}
	var refused []refusal
	for i := range records {
		r := records[i]
		if err := s.History.Append(ctx, records[i:i+1]); err == nil {
			continue
		} else if !isRefusal(ctx, err) {
			return err
		}
		cut(&r, err)
		switch err := s.History.Append(ctx, []store.Record{r}); {
		case err == nil:
		case !isRefusal(ctx, err):
			return err
		default:
			refused = append(refused, refusal{r, err})
		}
	}
	if len(refused) == len(records) {
		return fmt.Errorf("history accepts no record: %w", err)
	}
	s.mu.Lock()
	s.status.Aside += len(refused)
	s.mu.Unlock()
	for _, one := range refused {
		s.opt.Log.Error("history has refused a record, which is lost", "run", one.Run.ID, "attempt", one.Attempt.Number,
			"job", one.Run.Namespace+"/"+one.Run.Name, "outcome", one.Attempt.Outcome, "reason", one.Attempt.Reason.String(), "error", one.error)
	}
	return nil
}

// refusal is a record that history has refused, and why.
type refusal struct {
	store.Record
	error
}

// isRefusal reports whether history has refused records permanently.
func isRefusal(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !slices.ContainsFunc([]error{store.ErrAway, store.ErrNoSpace, store.ErrReadOnly, store.ErrDamaged}, func(kind error) bool {
		return errors.Is(err, kind)
	})
}

// cut shortens a record so that any history accepts it, and notes that in its reason.
func cut(r *store.Record, err error) {
	short := func(text string) string {
		text = strings.ReplaceAll(strings.ToValidUTF8(text, "�"), "\x00", "�")
		return strings.ToValidUTF8(text[:min(len(text), refusedText)], "")
	}
	r.Run.Params = nil
	r.Attempt.Reason = reason.HistoryCut.Of(job.Text(short(r.Attempt.Reason.String())), reason.Words(short(err.Error())))
	r.Run.Reason, r.Unmet, r.Attempt.Signal, r.Attempt.Node = r.Attempt.Reason, job.Text(short(r.Unmet.String())), short(r.Attempt.Signal), short(r.Attempt.Node)
	r.Run.Node = short(r.Run.Node)
}

// shipOutput appends the output that waits on this node. Refused output waits, without delaying
// records.
func (s *Store) shipOutput(ctx context.Context) error {
	s.mu.Lock()
	again := s.refusing.err != nil // a second refusal, after a pause, is no passing fault
	rests := again && time.Since(s.refusing.at) < outputRest
	s.mu.Unlock()
	for !rests {
		chunks, number, err := s.spool.oldest()
		if err != nil || len(chunks) == 0 {
			return err
		}
		err = s.History.AppendOutput(ctx, chunks)
		refused := err != nil && isRefusal(ctx, err)
		if refused && again {
			err = s.appendChunks(ctx, chunks, err)
			refused = err != nil && isRefusal(ctx, err)
		}
		if err != nil && !refused {
			return err
		}
		if s.refuseOutput(err); refused {
			return nil
		}
		again = false
		if err := s.spool.taken(number); err != nil {
			return err
		}
	}
	return nil
}

// refuseOutput records that history has refused output, or has accepted it.
func (s *Store) refuseOutput(err error) {
	s.mu.Lock()
	before := s.refusing.err
	s.refusing.err, s.refusing.at = err, time.Now()
	s.mu.Unlock()
	switch {
	case err != nil && before == nil:
		s.opt.Log.Warn("history refuses output: it waits on this node, and is tried again", "every", outputRest, "error", err)
	case err == nil && before != nil:
		s.opt.Log.Info("history accepts output again")
	}
}

// outputError returns why history has refused output when it was tried last.
func (s *Store) outputError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusing.err
}

// appendChunks appends chunks one by one, after history has refused them together. A chunk is
// lost only if history accepts an empty one in its place; otherwise it refuses all output, and
// appendChunks returns the refusal.
func (s *Store) appendChunks(ctx context.Context, chunks []store.OutputChunk, refusal error) error {
	lost := 0
	for i := range chunks {
		err := s.History.AppendOutput(ctx, chunks[i:i+1])
		if err != nil && isRefusal(ctx, err) {
			empty := chunks[i]
			empty.Bytes, empty.Data = 0, []byte{0} // no records, as package output encodes them
			refusal = err
			if err = s.History.AppendOutput(ctx, []store.OutputChunk{empty}); err == nil {
				lost++
			}
		}
		if err != nil {
			return err
		}
	}
	if lost > 0 {
		s.spool.lose(lost)
		s.opt.Log.Warn("history has refused output, which is lost", "run", chunks[0].Run, "attempt", chunks[0].Attempt, "chunks", lost, "error", refusal)
	}
	return nil
}

func same(a, b *store.OutputChunk) bool {
	return a.Run == b.Run && a.Attempt == b.Attempt && a.Seq == b.Seq
}
