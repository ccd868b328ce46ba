package service

import (
	"context"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// beginningsMax bounds what is remembered, to about a megabyte.
const beginningsMax = 1000

// beginnings remembers when jobs began to fail whose last runs have no success, so that the history of each
// is searched once.
type beginnings struct {
	mu    sync.Mutex
	known map[job.ID]beginning
}

// beginning is where the failures of a job began.
type beginning struct {
	first   *store.Record
	success *store.Record // before it, nil if none was found
	seen    time.Time     // the end of the latest run that was known then
}

// of returns where the failures of a job began whose last runs, the latest first, have failures: by its last
// [store.LookMax] runs, or by what is remembered of earlier ones.
func (b *beginnings) of(ctx context.Context, history jobStore, uid job.ID, ended []store.Record) (beginning, error) {
	if len(ended) < inRowMax || lastSuccess(ended) != nil {
		return beginningOf(ended), nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	began, ok := b.known[uid]
	if !ok || began.seen.Before(ended[len(ended)-1].Attempt.Ended) { // a run between them may have succeeded
		all, err := history.Recent(ctx, []job.ID{uid}, store.LookMax)
		if err != nil {
			return began, err
		}
		if len(failures(all[0])) == 0 { // it has succeeded meanwhile
			return beginningOf(ended), nil
		}
		began = beginningOf(all[0])
	}
	began.seen = ended[0].Attempt.Ended
	if b.known == nil || len(b.known) >= beginningsMax {
		b.known = map[job.ID]beginning{}
	}
	b.known[uid] = began
	return began, nil
}

func beginningOf(ended []store.Record) beginning {
	list := failures(ended)
	return beginning{first: list[len(list)-1], success: lastSuccess(ended)}
}
