package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/remote/spool"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// spoolMax bounds the files of a spool: half a thousand attempts, as many as run at
	// once, with half of the output that is kept of each. Further results are kept without
	// output. Their number is bounded by the capacity: a waiting result takes the room of
	// an attempt, and a worker delivers the results of its last session before it begins
	// another.
	spoolMax = 256 << 20
	// damagedMax is the number of damaged files that are kept for inspection.
	damagedMax = 20
)

// Spool keeps results on disk until a server has them, so that they survive the worker's
// process. It belongs to one process, and its methods may be called from many goroutines.
type Spool struct {
	dir  *spool.Dir
	lock *os.File
	max  int64
	log  *slog.Logger

	mu      sync.Mutex
	waiting []*spooledResult // to be written
	writing bool             // a goroutine is at it
	kept    map[job.ID]*spooledResult
	size    int64 // of the files that this process knows
	full    bool  // was logged
}

// spooledResult is a result, by the token of its attempt.
type spooledResult struct {
	result *store.Result
	file   *file // nil until it is written
	gone   bool  // a server has it
}

// file has undelivered results.
type file struct {
	record *spool.Record
	left   int
	size   int64
}

// OpenSpool opens the spool in a directory, and creates it if necessary.
func OpenSpool(dir string, log *slog.Logger) (*Spool, error) {
	d, err := spool.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	lock, err := os.OpenFile(d.Path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("the spool %s is that of another process: each needs its own", dir)
	}
	list, err := d.List()
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("read the spool: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Spool{dir: d, lock: lock, max: spoolMax, log: log, kept: map[job.ID]*spooledResult{}, size: spool.Total(list)}, nil
}

// Close releases the directory. Undelivered results stay there.
func (s *Spool) Close() error {
	if s == nil {
		return nil
	}
	return s.lock.Close()
}

// Keep writes a result, which must not change any more, to disk. Of several concurrent
// callers one writes all, into one file, and the others do not wait.
func (s *Spool) Keep(r *store.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &spooledResult{result: r}
	s.kept[r.Token] = k
	s.waiting = append(s.waiting, k)
	if s.writing {
		return
	}
	s.writing = true
	for len(s.waiting) > 0 {
		batch := s.waiting[:min(len(s.waiting), store.MaxBatch)]
		s.waiting = s.waiting[len(batch):]
		batch = slices.DeleteFunc(batch, func(k *spooledResult) bool { return k.gone })
		if len(batch) == 0 {
			continue
		}
		room := s.max - s.size
		s.mu.Unlock()
		f, cut, err := s.write(batch, room)
		s.mu.Lock()
		s.wrote(batch, f, cut, err)
	}
	s.waiting, s.writing = nil, false
}

// write writes results into a file. For what exceeds the room it leaves the output out.
func (s *Spool) write(batch []*spooledResult, room int64) (_ *file, cut bool, err error) {
	var lines []byte
	for i, k := range batch {
		line, err := json.Marshal(wire.ResultOf(k.result))
		if err == nil && int64(len(lines)+len(line)) > room && len(k.result.Output) > 0 {
			short := *k.result
			short.Output, cut = nil, true
			line, err = json.Marshal(wire.ResultOf(&short))
		}
		if err != nil {
			return nil, cut, err
		}
		if i > 0 {
			lines = append(lines, '\n')
		}
		lines = append(lines, line...)
	}
	record, err := s.dir.Create(batch[0].result.Token.String(), lines)
	if err != nil {
		return nil, cut, err
	}
	record.Release() // the directory is locked
	return &file{record, 0, int64(len(lines)) + 1}, cut, nil
}

// wrote notes that results are in a file, or says why they are not. The caller holds the mutex.
func (s *Spool) wrote(batch []*spooledResult, f *file, cut bool, err error) {
	if bad := err != nil || cut; bad != s.full {
		switch s.full = bad; {
		case err != nil:
			s.log.Error("cannot write results to the spool; those that are not reported are lost when this process ends", "error", err)
		case cut:
			s.log.Warn("the spool is full; the output of further results is lost when this process ends before a server has them", "directory", s.dir.Path(), "bytes", s.max)
		default:
			s.log.Info("results are written to the spool again")
		}
	}
	if f == nil {
		return
	}
	s.size += f.size
	for _, k := range batch {
		if !k.gone {
			k.file = f
			f.left++
		}
	}
	if f.left == 0 {
		s.drop(f)
	}
}

// Forget removes the result of an attempt that a server has.
func (s *Spool) Forget(token job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[token]
	if k == nil {
		return
	}
	delete(s.kept, token)
	k.gone = true
	if k.file == nil {
		return
	}
	if k.file.left--; k.file.left == 0 {
		s.drop(k.file)
	}
}

func (s *Spool) drop(f *file) {
	f.record.Remove()
	s.size -= f.size
}

// Deliver sends the results on disk, of earlier processes or an earlier session, to a
// server before the session begins: results come before the new session's report on the
// attempts of earlier ones. It returns the attempts. The caller has no session, and stores
// no results in the meantime.
func (s *Spool) Deliver(ctx context.Context, session job.ID, finish func(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error)) ([]store.Attempt, error) {
	list, err := s.dir.List()
	if err != nil {
		return nil, fmt.Errorf("read the spool: %w", err)
	}
	var delivered []store.Attempt
	for _, f := range list {
		record, lines := spool.Take(f.Path, 2*spoolMax)
		if record == nil {
			continue // it is gone
		}
		results, damaged := decode(lines)
		for part := range slices.Chunk(results, store.MaxBatch) {
			err := s.deliver(ctx, session, part, finish)
			if err != nil {
				record.Release()
				return delivered, fmt.Errorf("deliver the results in the spool: %w", err)
			}
			for i := range part {
				delivered = append(delivered, part[i].Attempt)
			}
		}
		if damaged > 0 || len(lines) == 0 {
			s.setAside(f.Path, damaged)
		}
		record.Remove()
		record.Release()
	}
	if len(delivered) > 0 {
		s.log.Info("results of an earlier session were delivered", "results", len(delivered))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept, s.size = map[job.ID]*spooledResult{}, 0
	return delivered, nil
}

// decode reads the lines of a file. The last may be cut off.
func decode(lines [][]byte) (results []store.Result, damaged int) {
	for _, line := range lines {
		var r wire.Result
		if json.Unmarshal(line, &r) != nil || r.Run.IsZero() || r.Token.IsZero() || r.Number < 1 {
			damaged++
			continue
		}
		results = append(results, r.Result())
	}
	return results, damaged
}

// setAside moves a file with unreadable lines aside for inspection.
func (s *Spool) setAside(path string, damaged int) {
	const below = "damaged"
	err := os.MkdirAll(s.dir.Path(below), 0o700)
	names, _ := os.ReadDir(s.dir.Path(below)) // without them the rename fails with the reason
	aside := s.dir.Path(below, filepath.Base(path))
	if err == nil && len(names) < damagedMax {
		err = os.Rename(path, aside)
	} else {
		aside = ""
	}
	s.log.Error("a file of the spool is damaged: a process or machine went down while it was written; its other results are delivered",
		"file", path, "lines", damaged, "kept_as", aside, "error", err)
}

// deliver sends some results to a server. One that is always refused must not hold up the
// others.
func (s *Spool) deliver(ctx context.Context, session job.ID, results []store.Result, finish func(context.Context, job.ID, []store.Result) ([]store.FinishOutcome, error)) error {
	_, err := finish(ctx, session, results)
	switch {
	case err == nil || !isFinal(err):
		return err
	case len(results) == 1:
		s.log.Error("a server has refused a result in the spool; it is given up", "run", results[0].Run, "attempt", results[0].Number, "error", err)
		return nil
	}
	for i := range results {
		if err := s.deliver(ctx, session, results[i:i+1], finish); err != nil {
			return err
		}
	}
	return nil
}

// isFinal reports whether a server will refuse a request however often it is sent.
func isFinal(err error) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Problem.Type {
	case client.TypeNotFound, client.TypeConflict, client.TypeInvalid, client.TypeMalformed, client.TypeTooLarge:
		return true
	}
	return false
}
