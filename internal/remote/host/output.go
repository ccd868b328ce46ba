package host

import (
	"slices"
	"sync"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// outputDefault is the bound of the output of an attempt where none is configured.
	outputDefault = 1 << 20
	// chunkOverhead is what a chunk costs the store besides its data, so that many small ones count.
	chunkOverhead = 64
	// outputSessionsMax bounds the sessions whose output is counted: many times as many as a
	// cluster has workers. Beyond it counting begins anew.
	outputSessionsMax = 10_000
)

// workerOutput counts the stored output of the running attempts of workers: a worker bounds it, but
// the store must not depend on that. It is for many goroutines.
type workerOutput struct {
	// most is the bound of an attempt: twice what is kept of one, since a worker drops chunks of the
	// middle only when later ones are stored.
	most int

	mu sync.Mutex
	of map[job.ID]map[job.ID]*storedOutput // by session and run
}

// storedOutput is what was stored of an attempt.
type storedOutput struct {
	attempt, sum int
	chunks       map[int]int // their sizes by number
}

func newWorkerOutput(limit int) *workerOutput {
	if limit <= 0 {
		limit = outputDefault
	}
	return &workerOutput{most: 2 * limit, of: map[job.ID]map[job.ID]*storedOutput{}}
}

// allowed returns the chunks of a session that are within the bound, and counts them.
func (w *workerOutput) allowed(session job.ID, chunks []store.OutputChunk) []store.OutputChunk {
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := w.of[session]
	if runs == nil {
		if len(w.of) >= outputSessionsMax {
			clear(w.of)
		}
		runs = map[job.ID]*storedOutput{}
		w.of[session] = runs
	}
	return slices.DeleteFunc(chunks, func(c store.OutputChunk) bool {
		s := runs[c.Run]
		if s == nil || s.attempt != c.Attempt {
			s = &storedOutput{attempt: c.Attempt, chunks: map[int]int{}}
			runs[c.Run] = s
		}
		for seq, size := range s.chunks {
			if c.DropFrom <= seq && seq < c.DropTo {
				s.sum -= size
				delete(s.chunks, seq)
			}
		}
		size := len(c.Data) + chunkOverhead
		if _, again := s.chunks[c.Seq]; again {
			return false
		}
		if s.sum+size > w.most {
			return true
		}
		s.sum += size
		s.chunks[c.Seq] = size
		return false
	})
}

// forget removes the counts of a session for runs that it does not have any more.
func (w *workerOutput) forget(session job.ID, over func(run job.ID) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for run := range w.of[session] {
		if over(run) {
			delete(w.of[session], run)
		}
	}
	if len(w.of[session]) == 0 {
		delete(w.of, session)
	}
}
