// Package sqlite keeps Belfry's state in one SQLite file: the store of a self-contained single
// node. The logic is in package sqldb; this package has the parts specific to SQLite: connections,
// the one writer, the schema, backups, and the handling of a full disk.
//
// # One writer
//
// All writes go through one connection, which calls use in turn. Calls that arrive during a commit
// share the next transaction, each rolled back alone if it fails, and are answered when it is on
// disk (synchronous=FULL). Reads have connections of their own and see committed data. The log is
// written back in the background.
//
// # Errors
//
// Open returns an error that wraps [store.ErrDamaged] for a file that SQLite cannot read, and
// [ErrInUse] when another process has it open. Any method may return an error that wraps
// [store.ErrNoSpace] or [store.ErrReadOnly].
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// ErrInUse is returned by [Open] when another process has the database open.
var ErrInUse = errors.New("is in use by another process")

// errClosed is returned by calls after Close.
var errClosed = sqldb.ErrClosed

// Options configure [Open]. The zero value is valid.
type Options = sqldb.Options

const (
	// readersMax is the number of reading connections. More would slow the writer: eight busy ones
	// cut it to a seventh.
	readersMax = 3
	// writerCache and readerCache are how many KiB of pages a connection keeps. A page with its
	// header takes 8 KiB of memory, twice the counted size, and a busy node fills its cache within
	// minutes. Four times as many made no writer faster.
	writerCache, readerCache = 8 << 10, 4 << 10
	// checkTime bounds the check of the file after a crash. The rest is checked when it is read.
	checkTime = 3 * time.Second
)

// Store is a database file. Its methods may be called by any goroutine.
type Store struct {
	*sqldb.Store
	d *database
}

var _ store.Store = (*Store)(nil)

// database implements [sqldb.DB].
type database struct {
	path    string
	beside  bool // the file may have tables of a program
	now     func() time.Time
	lock    *os.File
	writer  *writer
	readers chan *conn // idle readers; never closed
	closed  chan struct{}

	statements, writings sync.Map // prepared texts by the texts of package sqldb
}

// Open opens a database file, creates it if necessary, and upgrades its schema. Further
// files have its name with the suffixes -wal, -shm, -lock and -ballast; the directory is
// created if necessary. The file must be on a local disk.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	return open(ctx, path, o, 0)
}

// open is [Open] with a bound for the pages of the file, 0 for none.
func open(ctx context.Context, path string, o Options, pages int) (*Store, error) {
	return openBeside(ctx, path, o, pages, false)
}

// openBeside is open for a file that may have tables of a program.
func openBeside(ctx context.Context, path string, o Options, pages int, beside bool) (*Store, error) {
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
	if o.Now == nil {
		o.Now = time.Now
	}
	d := &database{path: path, beside: beside, now: o.Now, lock: lock, readers: make(chan *conn, readersMax), closed: make(chan struct{})}
	if err := d.open(ctx, pages); err != nil {
		for range len(d.readers) {
			_ = (<-d.readers).close()
		}
		return nil, errors.Join(describe(path, err), unlock(lock))
	}
	s, err := sqldb.Open(ctx, d, o)
	if err != nil {
		return nil, errors.Join(describe(path, err), d.Close()) //nolint:contextcheck // the last write is made however the call ends
	}
	return &Store{s, d}, nil
}

// private creates the file of a new store, readable only by its owner: it contains commands and
// output. SQLite would make it readable for everyone, and gives its other files the same mode. For
// SQLite an empty file is a new store; beside a ballast, which only a used store has, it is a lost
// store.
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

// open opens the connections.
func (d *database) open(ctx context.Context, pages int) error {
	b := &ballast{path: d.path + "-ballast"}
	c, err := d.prepare(ctx, pages)
	if errors.Is(err, store.ErrNoSpace) && b.free() {
		c, err = d.prepare(ctx, pages)
	}
	if err != nil {
		return err
	}
	for range readersMax {
		reader, err := connect(d.path, false, fmt.Sprintf("pragma query_only = on; pragma cache_size = -%d", readerCache))
		if err != nil {
			return errors.Join(err, c.close())
		}
		d.readers <- reader
	}
	checkpoints, err := connect(d.path, false, "")
	if err != nil {
		return errors.Join(err, c.close())
	}
	b.restore(time.Now())
	d.writer = &writer{path: d.path, c: c, checkpoints: checkpoints, ballast: b, groupTime: groupTime}
	return nil
}

// prepare opens the writing connection, checks the file and upgrades its schema.
func (d *database) prepare(ctx context.Context, pages int) (*conn, error) {
	// A clean end removes the log.
	log, err := os.Stat(d.path + "-wal")
	unclean := err == nil && log.Size() > 0
	c, err := connect(d.path, true, fmt.Sprintf("pragma cache_size = -%d", writerCache))
	if err != nil {
		return nil, err
	}
	if unclean {
		if err := check(ctx, c); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	list, err := scripts()
	if err == nil && d.beside {
		err = adopt(c, d.path, list)
	}
	if err == nil {
		err = migrate(c, d.path, list, d.now())
	}
	if err == nil && pages > 0 {
		err = c.exec(fmt.Sprintf("pragma max_page_count = %d", pages))
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// connect opens a connection with the common settings.
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

// writeAhead switches to the write-ahead log, and to syncing each commit.
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

// check searches for damage after an unclean end, for a bounded time.
func check(ctx context.Context, c *conn) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	if err := damage(ctx, c, "pragma quick_check(1)"); !interrupted(err) {
		return err
	}
	return nil
}

// damage runs a check of SQLite, until the context ends.
func damage(ctx context.Context, c *conn, pragma string) error {
	defer interruptible(ctx, c)()
	wrong := ""
	q := c.stmt(pragma)
	for q.next() {
		wrong = q.text()
	}
	if err := q.err(); err != nil || wrong == "ok" {
		return err
	}
	return fmt.Errorf("%w: %s", store.ErrDamaged, wrong)
}

// interruptEvery is how often a statement that outlives its context is interrupted:
// SQLite forgets an interrupt that comes between two statements.
const interruptEvery = 10 * time.Millisecond

// interruptible has a connection interrupted when the context ends, until release is
// called.
func interruptible(ctx context.Context, c *conn) (release func()) {
	if ctx.Done() == nil {
		return func() {}
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
	return func() {
		close(over)
		if !stop() {
			<-fired // otherwise it might hit the next call on the connection
		}
	}
}

// describe adds the file and a remedy to an error of [Open].
func describe(path string, err error) error {
	switch {
	case errors.Is(err, store.ErrDamaged):
		return fmt.Errorf("open %s: %w. Restore it from a backup; or save what can be saved with \"sqlite3 %s .recover\"; or move it and its -wal file away to begin with an empty store",
			path, err, filepath.Base(path))
	case errors.Is(err, store.ErrNoSpace):
		return fmt.Errorf("open %s: %w: on its disk %s to start, %s for new runs", path, err, needed(path, startRoom, "for the server"), mebibytes(workRoom))
	case errors.Is(err, store.ErrReadOnly):
		return fmt.Errorf("open %s: %w: the file and its directory must be writable", path, err)
	}
	return fmt.Errorf("open %s: %w", path, err)
}

// fileError wraps an error of the file system with its sentinel.
func fileError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", store.ErrNoSpace, err)
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", store.ErrReadOnly, err)
	}
	return err
}

// KeepsNotices implements [sqldb.DB].
func (d *database) KeepsNotices() bool { return false }

// Alone implements [sqldb.DB].
func (d *database) Alone() bool { return true }

// Caches implements [sqldb.DB].
func (d *database) Caches() bool { return false }

// Lateral implements [sqldb.DB]: SQLite does not support it.
func (d *database) Lateral() bool { return false }

// Failures implements [sqldb.DB]. Without statistics SQLite prefers the table.
func (d *database) Failures() (from, condition string) {
	return " indexed by history_failed", sqldb.Failed
}

// Paused implements [sqldb.DB].
func (d *database) Paused() string { return "j.paused_at <> 0" }

// Clock implements [sqldb.DB]: it is the clock of the process, from the options.
func (d *database) Clock() string { return "" }

// Era implements [sqldb.DB].
func (d *database) Era() int64 { return d.writer.era.Load() }

// Notify implements [sqldb.DB]: there are no other nodes.
func (d *database) Notify(context.Context, string) error { return nil }

// Listen implements [sqldb.DB].
func (d *database) Listen(ctx context.Context, begun func(), _ func(string)) error {
	begun()
	<-ctx.Done()
	return ctx.Err()
}

// Partition implements [sqldb.DB]: history has no parts.
func (d *database) Partition(context.Context, int64, int64) error { return nil }

// Fault implements [sqldb.DB]: what has failed would fail again.
func (d *database) Fault(error) sqldb.Fault { return sqldb.Final }

// Close implements [sqldb.DB]. It waits for current calls, writes the log back and closes the file.
func (d *database) Close() error {
	close(d.closed)
	var errs []error
	for range readersMax {
		errs = append(errs, (<-d.readers).close())
	}
	return errors.Join(append(errs, d.writer.close(), unlock(d.lock))...)
}

// passive is the checkpoint mode that writes back as far as readers allow.
const passive = lib.SQLITE_CHECKPOINT_PASSIVE
