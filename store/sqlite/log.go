package sqlite

import (
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// gatheredMax is how much of the log is written at once: as much as SQLite writes with
// one call of the system, which then costs little beside its bytes.
const gatheredMax = 128<<10 - 1

// logFile gathers what SQLite writes to the log of a connection when a transaction
// ends. SQLite writes each page and the few bytes before it by themselves, and the
// system needs longer for these calls than for the bytes.
//
// Nobody sees the difference: SQLite tells others of a transaction after it has waited
// for the disk, and nothing is held back when it waits for the disk or reads the file.
// A page for which there is no room in memory before the end is not held back either: a
// write that failed later would be told to a statement that can be undone by itself,
// and the rest of the transaction would be committed without the page.
type logFile struct {
	file    uintptr                 // that of SQLite
	given   lib.Tsqlite3_io_methods // what SQLite writes with
	ours    uintptr                 // a copy that comes here first
	memory  uintptr                 // gatheredMax bytes
	gathers bool                    // while a transaction ends
	used    int
	at      int64 // where they belong in the file

	// What ours points to, so that Go keeps it.
	write func(tls *libc.TLS, file, p uintptr, n int32, at int64) int32
	read  func(tls *libc.TLS, file, p uintptr, n int32, at int64) int32
	sync  func(tls *libc.TLS, file uintptr, flags int32) int32
}

// gatherLog makes a connection that waits for the disk gather what commit writes to its
// log.
func (c *conn) gatherLog() error {
	if err := c.exec("begin immediate; commit"); err != nil { // it opens the log
		return err
	}
	name, err := libc.CString("main")
	if err != nil {
		return err
	}
	defer libc.Xfree(c.tls, name)
	if rc := lib.Xsqlite3_file_control(c.tls, c.db, name, lib.SQLITE_FCNTL_JOURNAL_POINTER, c.out); rc != lib.SQLITE_OK {
		return c.failure(rc)
	}
	l := &logFile{file: *(*uintptr)(at(c.out))}
	file := (*lib.Tsqlite3_file)(at(l.file))
	l.given = *(*lib.Tsqlite3_io_methods)(at(file.FpMethods))
	l.memory = libc.Xmalloc(c.tls, gatheredMax)
	l.ours = libc.Xmalloc(c.tls, libc.Tsize_t(unsafe.Sizeof(l.given)))

	l.write = l.gather
	l.read = func(tls *libc.TLS, file, p uintptr, n int32, at int64) int32 {
		if rc := l.flush(tls); rc != lib.SQLITE_OK {
			return rc
		}
		return method[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](l.given.FxRead)(tls, file, p, n, at)
	}
	l.sync = func(tls *libc.TLS, file uintptr, flags int32) int32 {
		if rc := l.flush(tls); rc != lib.SQLITE_OK {
			return rc
		}
		return method[func(*libc.TLS, uintptr, int32) int32](l.given.FxSync)(tls, file, flags)
	}
	ours := (*lib.Tsqlite3_io_methods)(at(l.ours))
	*ours = l.given
	ours.FxWrite, ours.FxRead, ours.FxSync = pointer(&l.write), pointer(&l.read), pointer(&l.sync)
	file.FpMethods = l.ours
	c.log = l
	return nil
}

// commit ends the open transaction.
func (c *conn) commit() error {
	if l := c.log; l != nil {
		l.gathers = true
		defer func() { l.gathers, l.used = false, 0 }()
	}
	return c.stmt("commit").exec()
}

// free gives the memory back after the connection was closed.
func (l *logFile) free(tls *libc.TLS) {
	libc.Xfree(tls, l.ours)
	libc.Xfree(tls, l.memory)
}

// gather takes what SQLite writes.
func (l *logFile) gather(tls *libc.TLS, _, p uintptr, n int32, at int64) int32 {
	if at != l.at+int64(l.used) || l.used+int(n) > gatheredMax {
		if rc := l.flush(tls); rc != lib.SQLITE_OK {
			return rc
		}
	}
	if !l.gathers || n > gatheredMax {
		return l.put(tls, p, n, at)
	}
	if l.used == 0 {
		l.at = at
	}
	copy(bytesAt(l.memory+uintptr(l.used), int(n)), bytesAt(p, int(n)))
	l.used += int(n)
	return lib.SQLITE_OK
}

// flush writes what was gathered. What fails is forgotten: the transaction fails.
func (l *logFile) flush(tls *libc.TLS) int32 {
	n := l.used
	if n == 0 {
		return lib.SQLITE_OK
	}
	l.used = 0
	return l.put(tls, l.memory, int32(n), l.at)
}

// put writes to the file.
func (l *logFile) put(tls *libc.TLS, p uintptr, n int32, at int64) int32 {
	return method[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](l.given.FxWrite)(tls, l.file, p, n, at)
}

// method returns what a pointer to a function of SQLite calls.
func method[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

// pointer is the inverse of method.
func pointer[F any](f *F) uintptr { return *(*uintptr)(unsafe.Pointer(f)) }
