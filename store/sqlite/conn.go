package sqlite

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// conn is a connection to the database, for one goroutine at a time.
//
// It uses the driver's C interface of SQLite directly, and not database/sql, because a step of the
// store is many small statements: binding ids without an allocation, and watching no context in a
// goroutine per statement, makes single-row reads and writes more than twice as fast
// (BenchmarkStatements has the figures). All unsafe code of this package is in this file.
type conn struct {
	tls      *libc.TLS
	db       uintptr
	out      uintptr // 16 bytes for results of SQLite
	prepared map[string]*stmt
}

// Version of the SQLite in the program.
const Version = lib.SQLITE_VERSION

// valuesMax is the space for the texts and blobs of a statement. Longer values
// get memory of their own.
const valuesMax = 2 << 10

// openConn opens a connection. It creates the file if create is set.
func openConn(path string, create bool) (*conn, error) {
	c := &conn{tls: libc.NewTLS(), prepared: map[string]*stmt{}}
	c.out = libc.Xmalloc(c.tls, 16)
	name, err := libc.CString(path)
	if err != nil {
		c.close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer libc.Xfree(c.tls, name)
	flags := int32(lib.SQLITE_OPEN_READWRITE | lib.SQLITE_OPEN_NOMUTEX | lib.SQLITE_OPEN_PRIVATECACHE)
	if create {
		flags |= lib.SQLITE_OPEN_CREATE
	}
	rc := lib.Xsqlite3_open_v2(c.tls, name, c.out, flags, 0)
	c.db = *(*uintptr)(at(c.out))
	if rc != lib.SQLITE_OK {
		err := c.failure(rc)
		c.close()
		return nil, err
	}
	lib.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	// No other writer exists, so that only a checkpoint or a recovery of the log can block,
	// for a moment.
	lib.Xsqlite3_busy_timeout(c.tls, c.db, 10_000)
	// Without it SQLite plans a statement again whenever another value is bound
	// to a parameter that its plan may depend on, for each run.
	list := libc.NewVaList(int32(1), uintptr(0))
	lib.Xsqlite3_db_config(c.tls, c.db, lib.SQLITE_DBCONFIG_ENABLE_QPSG, list)
	libc.Xfree(c.tls, list)
	return c, nil
}

func (c *conn) close() error {
	for _, s := range c.prepared {
		lib.Xsqlite3_finalize(c.tls, s.p)
		s.free()
		libc.Xfree(c.tls, s.values)
	}
	c.prepared = nil
	var err error
	if c.db != 0 {
		if rc := lib.Xsqlite3_close_v2(c.tls, c.db); rc != lib.SQLITE_OK {
			err = c.failure(rc)
		}
		c.db = 0
	}
	libc.Xfree(c.tls, c.out)
	c.tls.Close()
	return err
}

// interrupt makes the connection's current statement fail with an error that interrupted
// recognizes. Any goroutine may call it while the connection is open.
func (c *conn) interrupt() {
	tls := libc.NewTLS()
	lib.Xsqlite3_interrupt(tls, c.db)
	tls.Close()
}

// inTransaction reports whether a transaction is open. SQLite ends some on its own
// when a statement fails.
func (c *conn) inTransaction() bool { return lib.Xsqlite3_get_autocommit(c.tls, c.db) == 0 }

// totalChanges returns the number of rows that were changed since the
// connection was opened.
func (c *conn) totalChanges() int64 { return lib.Xsqlite3_total_changes64(c.tls, c.db) }

// checkpoint writes the log back as far as readers allow, and returns the pages in the log
// and the number written back.
func (c *conn) checkpoint(mode int32) (pages, done int, err error) {
	rc := lib.Xsqlite3_wal_checkpoint_v2(c.tls, c.db, 0, mode, c.out, c.out+4)
	pages, done = int(*(*int32)(at(c.out))), int(*(*int32)(at(c.out + 4)))
	if rc != lib.SQLITE_OK {
		return pages, done, c.failure(rc)
	}
	return pages, done, nil
}

// exec runs a script of statements without parameters.
func (c *conn) exec(script string) error {
	z, err := libc.CString(script)
	if err != nil {
		return err
	}
	defer libc.Xfree(c.tls, z)
	if rc := lib.Xsqlite3_exec(c.tls, c.db, z, 0, 0, 0); rc != lib.SQLITE_OK {
		return c.failure(rc)
	}
	return nil
}

// failure returns SQLite's error of the latest call.
func (c *conn) failure(rc int32) error {
	e := &failure{code: rc, message: libc.GoString(lib.Xsqlite3_errstr(c.tls, rc))}
	if c.db == 0 {
		return e
	}
	e.message = libc.GoString(lib.Xsqlite3_errmsg(c.tls, c.db))
	e.errno = syscall.Errno(lib.Xsqlite3_system_errno(c.tls, c.db))
	return e
}

// failure is an error of SQLite. It wraps the corresponding sentinel of package store, if
// any.
type failure struct {
	code    int32 // extended
	errno   syscall.Errno
	message string
}

func (e *failure) Error() string {
	if e.errno != 0 && e.code&0xff == lib.SQLITE_IOERR || e.code&0xff == lib.SQLITE_CANTOPEN && e.errno != 0 {
		return fmt.Sprintf("sqlite: %s: %s (%d)", e.message, e.errno.Error(), e.code)
	}
	return fmt.Sprintf("sqlite: %s (%d)", e.message, e.code)
}

func (e *failure) Unwrap() error {
	switch e.code & 0xff {
	case lib.SQLITE_FULL:
		return store.ErrNoSpace
	case lib.SQLITE_READONLY, lib.SQLITE_PERM:
		return store.ErrReadOnly
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return store.ErrDamaged
	case lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN:
		switch e.errno {
		case syscall.ENOSPC, syscall.EDQUOT:
			return store.ErrNoSpace
		case syscall.EROFS, syscall.EACCES, syscall.EPERM:
			return store.ErrReadOnly
		}
	}
	return nil
}

// interrupted reports whether an error comes from conn.interrupt.
func interrupted(err error) bool {
	var e *failure
	return errors.As(err, &e) && e.code&0xff == lib.SQLITE_INTERRUPT
}

// stmt is a prepared statement. Values are bound in the order of its parameters, and columns read
// in order:
//
//	s := c.stmt("select due, state from active where id = ?").bindID(run)
//	for s.next() {
//		due, state := s.time(), s.int()
//	}
//	return s.err()
//
// After next has returned false, or exec, err or reset was called, it can be bound again. A mistake
// in the statement or its use is an error of next or exec.
type stmt struct {
	c      *conn
	p      uintptr
	params int32
	values uintptr   // memory of valuesMax bytes for bound texts and blobs
	used   int       // number of used bytes of values
	large  []uintptr // further memory for larger values
	bound  int32
	last   []lastValue // last value of each parameter
	column int32
	wrong  error
}

// lastValue is the last value of a parameter, if it was a number, null or an empty text or
// blob. Parameters keep their values, and most columns are the same in consecutive rows,
// which saves binding them again.
type lastValue struct {
	kind valueKind
	n    int64
}

type valueKind uint8

const (
	otherValue valueKind = iota
	aNumber
	noValue
	emptyText
	emptyBlob
)

// has reports whether the next parameter has a value already, and notes that it has.
func (s *stmt) has(kind valueKind, n int64) bool {
	i, v := int(s.bound)-1, lastValue{kind, n}
	if i >= len(s.last) {
		return false // SQLite says so
	}
	known := kind != otherValue && s.last[i] == v
	s.last[i] = v
	return known
}

// stmt returns the prepared statement of a text. The texts are constants, so that their number is
// bounded.
func (c *conn) stmt(text string) *stmt {
	if s := c.prepared[text]; s != nil {
		return s
	}
	s := &stmt{c: c}
	z, err := libc.CString(text)
	if err != nil {
		s.wrong = err
		return s
	}
	defer libc.Xfree(c.tls, z)
	rc := lib.Xsqlite3_prepare_v3(c.tls, c.db, z, -1, lib.SQLITE_PREPARE_PERSISTENT, c.out, 0)
	if rc != lib.SQLITE_OK {
		s.wrong = fmt.Errorf("%w in %q", c.failure(rc), text)
		return s
	}
	s.p = *(*uintptr)(at(c.out))
	s.params = lib.Xsqlite3_bind_parameter_count(c.tls, s.p)
	s.last = make([]lastValue, s.params)
	s.values = libc.Xmalloc(c.tls, valuesMax)
	c.prepared[text] = s
	return s
}

// place returns memory for n bytes of a value until the statement is reset.
func (s *stmt) place(n int) uintptr {
	if s.used+n <= valuesMax {
		p := s.values + uintptr(s.used)
		s.used += n
		return p
	}
	p := libc.Xmalloc(s.c.tls, libc.Tsize_t(n))
	s.large = append(s.large, p)
	return p
}

func (s *stmt) free() {
	for _, p := range s.large {
		libc.Xfree(s.c.tls, p)
	}
	s.large, s.used = s.large[:0], 0
}

func (s *stmt) check(rc int32) *stmt {
	if rc != lib.SQLITE_OK {
		clear(s.last)
		if s.wrong == nil {
			s.wrong = s.c.failure(rc)
		}
	}
	return s
}

func (s *stmt) bindInt(v int64) *stmt {
	if s.p == 0 {
		return s
	}
	s.bound++
	if s.has(aNumber, v) {
		return s
	}
	return s.check(lib.Xsqlite3_bind_int64(s.c.tls, s.p, s.bound, v))
}

func (s *stmt) bindNull() {
	if s.p == 0 {
		return
	}
	s.bound++
	if s.has(noValue, 0) {
		return
	}
	s.check(lib.Xsqlite3_bind_null(s.c.tls, s.p, s.bound))
}

func (s *stmt) bindText(v string) *stmt {
	if s.p == 0 {
		return s
	}
	s.bound++
	if len(v) == 0 {
		if s.has(emptyText, 0) {
			return s
		}
		return s.check(lib.Xsqlite3_bind_text(s.c.tls, s.p, s.bound, s.values, 0, 0))
	}
	s.has(otherValue, 0)
	p := s.place(len(v))
	copy(bytesAt(p, len(v)), v)
	return s.check(lib.Xsqlite3_bind_text(s.c.tls, s.p, s.bound, p, int32(len(v)), 0))
}

func (s *stmt) bindBlob(v []byte) *stmt {
	if s.p == 0 {
		return s
	}
	s.bound++
	if len(v) == 0 {
		if s.has(emptyBlob, 0) {
			return s
		}
		// An address that is null would bind null.
		return s.check(lib.Xsqlite3_bind_blob(s.c.tls, s.p, s.bound, s.values, 0, 0))
	}
	s.has(otherValue, 0)
	p := s.place(len(v))
	copy(bytesAt(p, len(v)), v)
	return s.check(lib.Xsqlite3_bind_blob(s.c.tls, s.p, s.bound, p, int32(len(v)), 0))
}

// bindID binds an id; the zero id is an empty blob, which sorts first.
func (s *stmt) bindID(v job.ID) *stmt {
	if v.IsZero() {
		return s.bindBlob(nil)
	}
	return s.bindBlob(v[:])
}

func (s *stmt) bindTime(t time.Time) *stmt { return s.bindInt(columns.Nanos(t)) }

// next steps to the next row.
func (s *stmt) next() bool {
	if s.wrong == nil && s.bound != s.params {
		s.wrong = fmt.Errorf("a statement with %d parameters was given %d", s.params, s.bound)
	}
	if s.wrong != nil {
		s.rewind()
		return false
	}
	s.column = 0
	switch rc := lib.Xsqlite3_step(s.c.tls, s.p); rc {
	case lib.SQLITE_ROW:
		return true
	case lib.SQLITE_DONE:
	default:
		s.wrong = s.c.failure(rc)
	}
	s.rewind()
	return false
}

// rewind makes the statement ready to be bound again and keeps its error.
func (s *stmt) rewind() {
	if s.p != 0 {
		lib.Xsqlite3_reset(s.c.tls, s.p)
	}
	s.bound, s.column = 0, 0
	s.free()
}

// err ends the use of the statement and returns its error.
func (s *stmt) err() error {
	s.rewind()
	err := s.wrong
	if s.p != 0 {
		s.wrong = nil
	}
	return err
}

// exec runs the statement to its end.
func (s *stmt) exec() error {
	for s.next() {
	}
	return s.err()
}

func (s *stmt) int() int64 {
	v := lib.Xsqlite3_column_int64(s.c.tls, s.p, s.column)
	s.column++
	return v
}

func (s *stmt) skip() { s.column++ }

// view returns the bytes of a text or blob until the statement moves on.
func (s *stmt) view() []byte {
	p := lib.Xsqlite3_column_blob(s.c.tls, s.p, s.column)
	n := int(lib.Xsqlite3_column_bytes(s.c.tls, s.p, s.column))
	s.column++
	if p == 0 || n == 0 {
		return nil
	}
	return bytesAt(p, n)
}

func (s *stmt) text() string { return string(s.view()) }

func (s *stmt) id() (id job.ID) {
	copy(id[:], s.view())
	return id
}

// at returns a pointer to memory of SQLite, which Go's collector does not manage.
func at(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) } //nolint:gosec // see above

func bytesAt(p uintptr, n int) []byte { return unsafe.Slice((*byte)(at(p)), n) } //nolint:gosec // see at
