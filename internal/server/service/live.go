package service

import (
	"context"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// LiveLogs reads the logs of running runs at executors elsewhere.
type LiveLogs interface {
	// Log returns the log of an attempt so far, in chunks that never change between calls;
	// none if it does not run elsewhere.
	Log(ctx context.Context, run job.ID, attempt int) ([]store.OutputChunk, error)
}

// liveSeq is the first number of chunks outside any store: a store begins with 0.
const liveSeq = 1 << 30

// liveOutput is output that is not in the store while its attempt runs elsewhere. A reader
// of live chunks later gets the stored output from the beginning: it goes by offsets, and
// skips what it has.
type liveOutput struct {
	outputStore
	live LiveLogs
}

// Output implements outputStore.
func (o *liveOutput) Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) ([]store.OutputChunk, error) {
	from := fromSeq
	if from >= liveSeq {
		from = 0
	}
	chunks, err := o.outputStore.Output(ctx, run, attempt, from, limit)
	if err != nil || len(chunks) > 0 || from > 0 {
		return chunks, err
	}
	all, err := o.live.Log(ctx, run, attempt)
	if err != nil {
		return nil, err
	}
	var list []store.OutputChunk
	for _, c := range all {
		if c.Seq += liveSeq; c.Seq >= fromSeq && len(list) < limit {
			list = append(list, c)
		}
	}
	return list, nil
}
