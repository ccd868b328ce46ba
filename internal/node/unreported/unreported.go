// Package unreported keeps results of attempts on disk until the store has them, so that they
// survive the process of their node. The next process of the node delivers them, or the watchdog of
// a dead one before that.
package unreported

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
	"time"

	"github.com/belfry-cron/belfry/internal/remote/spool"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// spoolMax bounds the files of a spool: 512 attempts, the default capacity, with half of their
	// kept output. Further results have no output. Their number is bounded: a waiting result takes
	// capacity, and a worker delivers the results of its last session before the next.
	spoolMax = 256 << 20
	// fileMax is the size at which a file gets no more results: an unreported one keeps the whole file.
	fileMax = 1 << 20
	// damagedMax is how many damaged files stay for inspection.
	damagedMax = 20
)

// Folder is the name of the spool in a data directory.
const Folder = "spool"

// lockEvery is the time between two tries to get the lock of the directory.
const lockEvery = 20 * time.Millisecond

// ErrInUse is returned by [Open] when another process has the directory.
var ErrInUse = errors.New("it is used by another process: each needs its own")

// Config configures a spool.
type Config struct {
	// Dir is the directory, which is created if necessary.
	Dir string
	// IsRefused reports whether the store will refuse a result however often it is reported.
	// Nil: it refuses none so.
	IsRefused func(error) bool
	Log       *slog.Logger
}

// Spool is the spool of one process. Its methods may be called from many goroutines.
type Spool struct {
	dir       *spool.Dir
	lock      *os.File
	max       int64
	isRefused func(error) bool
	log       *slog.Logger

	mu        sync.Mutex
	waiting   []*spooledResult // to be written
	unwritten []*spooledResult // results that could not be written
	writing   bool             // a goroutine is writing
	current   *file            // gets the next results; nil until there are some
	byID      map[job.ID]*spooledResult
	size      int64 // size of the files known to this process
	full      bool  // was logged
}

// spooledResult is a result and its file.
type spooledResult struct {
	result *store.Result
	file   *file // nil until it is written
	gone   bool  // the store has the result
}

// file has undelivered results. The current one is emptied when it has none, since a new file for each
// result would cost more than the rest of its end.
type file struct {
	record *spool.Record
	left   int
	size   int64
}

// Open opens a spool. Until ctx ends it waits for the process that has the directory: an ending
// predecessor, or its watchdog, which delivers the results.
func Open(ctx context.Context, c Config) (*Spool, error) {
	d, err := spool.Open(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	lock, err := os.OpenFile(d.Path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			lock.Close()
			return nil, fmt.Errorf("open the spool %s: %w", c.Dir, ErrInUse)
		case <-time.After(lockEvery):
		}
	}
	list, err := d.List()
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("read the spool: %w", err)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.IsRefused == nil {
		c.IsRefused = func(error) bool { return false }
	}
	return &Spool{dir: d, lock: lock, max: spoolMax, isRefused: c.IsRefused, log: c.Log, byID: map[job.ID]*spooledResult{}, size: spool.Total(list)}, nil
}

// Close releases the directory. Undelivered results stay there.
func (s *Spool) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.flush() // there may be room for unwritten results
	s.leave()
	s.mu.Unlock()
	return s.lock.Close()
}

// leave ends the current file. The caller holds the mutex.
func (s *Spool) leave() {
	if s.current == nil {
		return
	}
	if s.current.left == 0 {
		s.current.record.Remove()
	}
	s.current.record.Release() // the lock of the directory suffices
	s.current = nil
}

// Keep writes a result, which must not change any more, to disk. One of several concurrent callers
// writes all results, and the others do not wait.
func (s *Spool) Keep(r *store.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &spooledResult{result: r}
	s.byID[r.Token] = k
	s.waiting = append(s.waiting, k)
	s.flush()
}

// flush writes waiting and previously failed results. The caller holds the mutex.
func (s *Spool) flush() {
	if s.writing {
		return
	}
	s.writing = true
	s.waiting = append(s.unwritten, s.waiting...)
	s.unwritten = nil
	for len(s.waiting) > 0 {
		batch := s.waiting[:min(len(s.waiting), store.MaxBatch)]
		s.waiting = s.waiting[len(batch):]
		batch = slices.DeleteFunc(batch, func(k *spooledResult) bool { return k.gone })
		if len(batch) == 0 {
			continue
		}
		if s.current != nil && s.current.size >= fileMax {
			s.leave()
		}
		f, room := s.current, s.max-s.size
		s.mu.Unlock()
		f, size, cut, err := s.write(f, batch, room)
		s.mu.Lock()
		s.current = f
		s.wrote(batch, size, cut, err)
	}
	s.waiting, s.writing = nil, false
}

// write adds results to a file, to a new one if it is nil, without the output of results that exceed the
// room.
func (s *Spool) write(to *file, batch []*spooledResult, room int64) (f *file, size int64, cut bool, err error) {
	var lines []byte
	for i, k := range batch {
		line, err := json.Marshal(wire.ResultOf(k.result))
		if err == nil && int64(len(lines)+len(line)) > room && len(k.result.Output) > 0 {
			short := *k.result
			short.Output, cut = nil, true
			line, err = json.Marshal(wire.ResultOf(&short))
		}
		if err != nil {
			return to, 0, cut, err
		}
		if i > 0 {
			lines = append(lines, '\n')
		}
		lines = append(lines, line...)
	}
	size = int64(len(lines)) + 1
	if to != nil {
		return to, size, cut, to.record.Add(lines)
	}
	record, err := s.dir.Create(batch[0].result.Token.String(), lines)
	if err != nil {
		return nil, 0, cut, err
	}
	return &file{record: record}, size, cut, nil
}

// wrote records that results are in the current file, or logs why they are not. The caller holds the
// mutex.
func (s *Spool) wrote(batch []*spooledResult, size int64, cut bool, err error) {
	if bad := err != nil || cut; bad != s.full {
		switch s.full = bad; {
		case err != nil:
			s.log.Error("cannot write results to the spool; unreported results are lost when this process ends, unless a later try succeeds", "error", err)
		case cut:
			s.log.Warn("the spool is full; the output of further results is lost when this process ends before the store has them", "directory", s.dir.Path(), "bytes", s.max)
		default:
			s.log.Info("results are written to the spool again")
		}
	}
	if err != nil {
		s.leave() // its last line may be incomplete
		s.unwritten = append(s.unwritten, batch...)
		return
	}
	f := s.current
	f.size += size
	s.size += size
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

// Forget removes the result of an attempt that the store has.
func (s *Spool) Forget(token job.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byID[token]
	if k == nil {
		return
	}
	delete(s.byID, token)
	k.gone = true
	if k.file == nil {
		return
	}
	if k.file.left--; k.file.left == 0 && !(s.writing && k.file == s.current) {
		s.drop(k.file)
	}
}

// drop removes a file without results, or empties the current one. The caller holds the mutex, and no
// goroutine writes into the file.
func (s *Spool) drop(f *file) {
	s.size -= f.size
	f.size = 0
	switch {
	case f != s.current:
		f.record.Remove()
	case f.record.Empty() != nil:
		s.leave()
	}
}

// Deliver sends the results on disk, of earlier processes or sessions, to the store before the
// session begins, so that they precede its report on earlier attempts. It returns the attempts. The
// caller has no session, and stores no results in the meantime. A file with a result that the store
// cannot decide about yet stays for the next session: see [store.FinishOutcome].
func (s *Spool) Deliver(ctx context.Context, session job.ID, finish Finish) ([]store.Attempt, error) {
	s.mu.Lock()
	s.leave()
	s.mu.Unlock()
	list, err := s.dir.List()
	if err != nil {
		return nil, fmt.Errorf("read the spool: %w", err)
	}
	var delivered []store.Attempt
	var size int64
	for _, f := range list {
		if f.Foreign {
			s.setAside(f.Path, "it belongs to another user, or is no regular file", 0)
			continue
		}
		record, lines := spool.Take(f.Path, 2*spoolMax)
		if record == nil { // no other process can have it
			s.setAside(f.Path, "it cannot be opened", 0)
			continue
		}
		results, damaged := decode(lines)
		undecided := false
		for part := range slices.Chunk(results, store.MaxBatch) {
			again, err := s.deliver(ctx, session, part, finish)
			if err != nil {
				record.Release()
				return delivered, fmt.Errorf("deliver the results in the spool: %w", err)
			}
			undecided = undecided || again
			for i := range part {
				delivered = append(delivered, part[i].Attempt)
			}
		}
		switch {
		case damaged > 0 || len(lines) == 0 && f.Size > 0:
			s.setAside(f.Path, "a process or machine went down while it was written", damaged)
		case undecided:
			size += f.Size
			record.Release()
			continue
		}
		record.Remove()
		record.Release()
	}
	if len(delivered) > 0 {
		s.log.Info("results of an earlier session were delivered", "results", len(delivered))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID, s.unwritten, s.size = map[job.ID]*spooledResult{}, nil, size
	return delivered, nil
}

// Finish reports results to the store: see [store.Working].
type Finish = func(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error)

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

// setAside renames a file with unreadable lines, for inspection.
func (s *Spool) setAside(path, why string, lines int) {
	const below = "damaged"
	err := os.MkdirAll(s.dir.Path(below), 0o700)
	names, _ := os.ReadDir(s.dir.Path(below)) // if that fails, the rename fails with the reason
	aside := s.dir.Path(below, filepath.Base(path))
	if err == nil && len(names) < damagedMax {
		err = os.Rename(path, aside)
	} else {
		aside = ""
	}
	s.log.Error("a file of the spool is damaged; its other results are delivered", "file", path, "because", why, "lines", lines, "kept_as", aside, "error", err)
}

// deliver sends some results to the store, and reports whether it is undecided about any. A result
// that is always refused must not delay others.
func (s *Spool) deliver(ctx context.Context, session job.ID, results []store.Result, finish Finish) (undecided bool, err error) {
	outcomes, err := finish(ctx, session, results)
	switch {
	case err == nil || !s.isRefused(err):
		return slices.ContainsFunc(outcomes, func(o store.FinishOutcome) bool { return o.Undecided }), err
	case len(results) == 1:
		s.log.Error("the store has refused a result in the spool; it is given up", "run", results[0].Run, "attempt", results[0].Number, "error", err)
		return false, nil
	}
	for i := range results {
		again, err := s.deliver(ctx, session, results[i:i+1], finish)
		if err != nil {
			return false, err
		}
		undecided = undecided || again
	}
	return undecided, nil
}
