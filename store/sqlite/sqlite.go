// Package sqlite keeps Belfry's state in one SQLite file: the store of a single
// node that needs nothing beside it. It implements the contract of package store
// and decides nothing: what a step does is decided by package internal/engine.
//
// # One writer
//
// All writes go through one goroutine and one connection. Calls that arrive
// while a transaction is being committed go into the next one together, each
// undone by itself if it fails, and are answered when it is on disk
// (synchronous=FULL). Reads have connections of their own and see what is
// committed. The log is written back in the background.
//
// # Errors
//
// Open returns an error that wraps store.ErrDamaged for a file that SQLite
// cannot read, and ErrInUse when another process has it open. Any method may
// return one that wraps store.ErrNoSpace or store.ErrReadOnly.
package sqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/belfry-cron/belfry/internal/events"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
	"github.com/belfry-cron/belfry/store/internal/refill"
)

// ErrInUse is returned by Open when another process has the database open.
var ErrInUse = errors.New("is in use by another process")

// errClosed is returned by calls after Close.
var errClosed = errors.New("the store is closed")

// Options are what Open needs to know. The zero value will do.
type Options struct {
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// LookAhead is how far ahead runs are planned, the same as the planner's. Default:
	// store.LookAheadDefault.
	LookAhead time.Duration
	// Defaults are filled in where jobs say nothing. Default: what is built in.
	Defaults job.Defaults
	// NewID makes the uids of jobs, calendars and pools. Default: by the clock
	// and at random.
	NewID func() job.ID
	// Revisions is how many definitions of a job are kept. Default:
	// store.RevisionsDefault.
	Revisions int
	// Refill is told, if the defaults are others than before, how far they are filled
	// in: at once, now and then, and at the end. It is called by Open, and later by one
	// goroutine. May be nil.
	Refill func(store.Refill)
	// RefillMax is how long that may hold Open up; the rest is done beside. Default:
	// 3 s.
	RefillMax time.Duration

	// maxPages bounds the file, for tests of what happens when it is full.
	maxPages int
}

const (
	// readersMax is how many connections read. Each more takes from the
	// writer: eight busy ones cut it to a seventh.
	readersMax = 3
	// writerCache and readerCache are how many KiB of pages a connection keeps. A page
	// and its header take 8 KiB of memory, which is twice what is counted, and a busy
	// node fills them within minutes. A writer that kept four times as many was no faster.
	writerCache, readerCache = 8 << 10, 4 << 10
	// checkTime bounds the check of the file after a crash. What it has not
	// seen by then is checked when it is read.
	checkTime = 3 * time.Second
)

// Store is a database file. Its methods may be called by any goroutine.
type Store struct {
	path      string
	now       func() time.Time
	lookAhead time.Duration
	defaults  job.Defaults
	revisions int // of each job that are kept
	newID     func() job.ID

	lock    *os.File
	writer  *writer
	readers chan *conn // those that nobody uses; never closed
	jobs    *jobCache
	lines   *lines
	hints   events.Hints
	feed    events.Feed
	ended   columns.Ends

	closing    sync.Once
	closed     chan struct{}  // closed by Close
	background sync.WaitGroup // what ends by itself after that
	failure    error          // of Close
}

var _ store.Store = (*Store)(nil)

// Open opens a database file, makes it if it is not there, and brings its schema
// up to date. Beside it there are files with its name and -wal, -shm, -lock and
// -ballast behind it; the directory is made if it is not there. The file must be
// on a local disk.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the store: %w", fileError(err))
	}
	lock, err := lockFile(path + "-lock")
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, fileError(err))
	}
	if err := private(path); err != nil {
		return nil, errors.Join(describe(path, fileError(err)), unlock(lock))
	}
	s := &Store{
		path:      path,
		now:       o.Now,
		lookAhead: cmp.Or(o.LookAhead, store.LookAheadDefault),
		defaults:  o.Defaults,
		revisions: cmp.Or(o.Revisions, store.RevisionsDefault),
		newID:     o.NewID,
		lock:      lock,
		readers:   make(chan *conn, readersMax),
		jobs:      newJobCache(),
		closed:    make(chan struct{}),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.newID == nil {
		s.newID = func() job.ID {
			id, _ := job.NewID(s.now(), rand.Reader) // crypto/rand does not fail
			return id
		}
	}
	if err := s.open(ctx, o); err != nil {
		for range len(s.readers) {
			_ = (<-s.readers).close()
		}
		return nil, errors.Join(describe(path, err), unlock(lock))
	}
	return s, nil
}

// private makes the file of a new store, for its owner alone: commands and output
// are in it. SQLite would let everybody read it, and makes the files beside it as
// readable as this one. An empty file is a new store to it; beside a ballast, which
// only a store that was open has, it is one of which nothing is left.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		info, err := os.Stat(path)
		if err != nil || info.Size() > 0 {
			return err
		}
		if _, err := os.Stat(path + "-ballast"); err == nil {
			return fmt.Errorf("%w: the file is empty, and was not", store.ErrDamaged)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// open opens the connections and starts the writer.
func (s *Store) open(ctx context.Context, o Options) error {
	b := &ballast{path: s.path + "-ballast"}
	c, err := s.prepare(ctx, o)
	if errors.Is(err, store.ErrNoSpace) && b.free() {
		c, err = s.prepare(ctx, o)
	}
	if err != nil {
		return err
	}
	if s.lines, err = readLines(c); err != nil {
		return errors.Join(err, c.close())
	}
	for range readersMax {
		reader, err := connect(s.path, false, fmt.Sprintf("pragma query_only = on; pragma cache_size = -%d", readerCache))
		if err != nil {
			return errors.Join(err, c.close())
		}
		s.readers <- reader
	}
	checkpoints, err := connect(s.path, false, "")
	if err != nil {
		return errors.Join(err, c.close())
	}
	s.writer = newWriter(s, c, checkpoints, b)
	go s.writer.run()
	if err := s.applyDefaults(ctx, cmp.Or(o.RefillMax, refill.StartMax), o.Refill); err != nil {
		s.closing.Do(func() { close(s.closed) })
		<-s.writer.done
		return errors.Join(err, s.writer.close())
	}
	return nil
}

// prepare opens the connection that writes and sees to it that the file is whole
// and has the newest schema.
func (s *Store) prepare(ctx context.Context, o Options) (*conn, error) {
	// A clean end removes the log.
	log, err := os.Stat(s.path + "-wal")
	unclean := err == nil && log.Size() > 0
	c, err := connect(s.path, true, fmt.Sprintf("pragma cache_size = -%d", writerCache))
	if err != nil {
		return nil, err
	}
	if unclean {
		if err := check(ctx, c); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	list, err := scripts()
	if err == nil {
		err = migrate(c, s.path, list, s.now())
	}
	if err == nil {
		err = c.gatherLog()
	}
	if err == nil && o.maxPages > 0 {
		err = c.exec(fmt.Sprintf("pragma max_page_count = %d", o.maxPages))
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// connect opens a connection with the settings that all of them have.
func connect(path string, create bool, settings string) (*conn, error) {
	c, err := openConn(path, create)
	if err != nil {
		return nil, err
	}
	err = c.exec("pragma temp_store = memory; pragma wal_autocheckpoint = 0; pragma journal_size_limit = 67108864;" + settings)
	if err == nil {
		err = writeAhead(c)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// writeAhead switches to the write-ahead log, and to waiting for the disk at
// each commit.
func writeAhead(c *conn) error {
	mode := ""
	q := c.stmt("pragma journal_mode = wal")
	for q.next() {
		mode = q.text()
	}
	if err := q.err(); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system cannot keep a write-ahead log: journal mode is %q", mode)
	}
	return c.exec("pragma synchronous = full")
}

// check looks for damage after an unclean end, for a bounded time.
func check(ctx context.Context, c *conn) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	wrong := ""
	err := interruptible(ctx, c, func() error {
		q := c.stmt("pragma quick_check(1)")
		for q.next() {
			wrong = q.text()
		}
		return q.err()
	})
	switch {
	case interrupted(err):
		return nil
	case err == nil && wrong != "ok":
		return fmt.Errorf("%w: %s", store.ErrDamaged, wrong)
	}
	return err
}

// interruptEvery is how often what goes on after the end of its context is
// interrupted: SQLite forgets an interrupt that comes between two statements.
const interruptEvery = 10 * time.Millisecond

// interruptible runs do, and interrupts the connection when the context ends.
func interruptible(ctx context.Context, c *conn, do func() error) error {
	if ctx.Done() == nil {
		return do()
	}
	over, fired := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		again := time.NewTicker(interruptEvery)
		defer again.Stop()
		for {
			c.interrupt()
			select {
			case <-over:
				return
			case <-again.C:
			}
		}
	})
	err := do()
	close(over)
	if !stop() {
		<-fired // or it would hit whoever uses the connection next
	}
	return err
}

// describe names the file in an error of Open and says the way out.
func describe(path string, err error) error {
	switch {
	case errors.Is(err, store.ErrDamaged):
		return fmt.Errorf("open %s: %w. Restore it from a backup; or save what can be saved with \"sqlite3 %s .recover\"; or move it and its -wal file away to begin with an empty store",
			path, err, filepath.Base(path))
	case errors.Is(err, store.ErrNoSpace):
		return fmt.Errorf("open %s: %w: free some space on its disk", path, err)
	case errors.Is(err, store.ErrReadOnly):
		return fmt.Errorf("open %s: %w: the file and its directory must be writable", path, err)
	}
	return fmt.Errorf("open %s: %w", path, err)
}

// fileError gives an error of the file system the sentinel that it stands for.
func fileError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", store.ErrNoSpace, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", store.ErrReadOnly, err)
	}
	return err
}

// Close waits for the writes that have begun, writes the log back and closes the
// file. Calls that come later return an error. It may be called again.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		<-s.writer.done
		s.background.Wait()
		var errs []error
		for range readersMax {
			errs = append(errs, (<-s.readers).close())
		}
		errs = append(errs, s.writer.close(), unlock(s.lock))
		s.failure = errors.Join(errs...)
	})
	return s.failure
}

// Now returns the clock of the process.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.clock(), ctx.Err() }

// clock is the clock as stores keep times: in UTC, to the microsecond.
func (s *Store) clock() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

// usable returns why a call cannot go on: its context has ended, or the store is
// closed.
func (s *Store) usable(ctx context.Context) error {
	select {
	case <-s.closed:
		return errClosed
	default:
		return ctx.Err()
	}
}

// read runs do on a connection that sees one state of the database.
func (s *Store) read(ctx context.Context, do func(c *conn) error) error {
	if err := s.usable(ctx); err != nil {
		return err // or a short one would end before it is interrupted, now and then
	}
	var c *conn
	select {
	case c = <-s.readers:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return errClosed
	}
	defer func() { s.readers <- c }()
	err := interruptible(ctx, c, func() error {
		if err := c.stmt("begin").exec(); err != nil {
			return err
		}
		return do(c)
	})
	if c.inTransaction() {
		err = errors.Join(err, c.stmt("commit").exec())
	}
	if interrupted(err) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// passive is the checkpoint mode that writes back what nobody is in the way of.
const passive = lib.SQLITE_CHECKPOINT_PASSIVE

// wrapped says what a call was about in its error.
func wrapped(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
