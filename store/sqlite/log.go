package sqlite

import (
	"encoding/binary"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

const (
	// gatheredMax is how much of the log is written at once: as much as SQLite writes
	// with one call of the system, which then costs little beside its bytes.
	gatheredMax = 128<<10 - 1
	// frameHeader is the size of what stands before each page in the log, pagesAfter
	// where it has the size of the database in pages, if a transaction ends with it.
	frameHeader = 24
	pagesAfter  = 4
)

// logFile gathers what SQLite writes to the log of a connection. SQLite writes each
// page and the few bytes before it by themselves, and the system needs longer for these
// calls than for the bytes.
//
// Nobody sees the difference: only a page with which a transaction ends makes those
// before it known to others, and that one is not held back; nor is anything when SQLite
// reads the file, measures it or waits for the disk.
type logFile struct {
	file   uintptr                 // that of SQLite
	given  lib.Tsqlite3_io_methods // what SQLite writes with
	ours   uintptr                 // a copy that comes here first
	memory uintptr                 // gatheredMax bytes
	used   int
	at     int64 // where they belong in the file
	ends   bool  // a transaction ends with the next page

	// What ours points to, so that Go keeps it.
	write    func(tls *libc.TLS, file, p uintptr, n int32, at int64) int32
	read     func(tls *libc.TLS, file, p uintptr, n int32, at int64) int32
	truncate func(tls *libc.TLS, file uintptr, size int64) int32
	sync     func(tls *libc.TLS, file uintptr, flags int32) int32
	size     func(tls *libc.TLS, file, size uintptr) int32
}

// gatherLog makes a connection that has a log gather what is written to it.
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
	l.truncate = func(tls *libc.TLS, file uintptr, size int64) int32 {
		if rc := l.flush(tls); rc != lib.SQLITE_OK {
			return rc
		}
		return method[func(*libc.TLS, uintptr, int64) int32](l.given.FxTruncate)(tls, file, size)
	}
	l.sync = func(tls *libc.TLS, file uintptr, flags int32) int32 {
		if rc := l.flush(tls); rc != lib.SQLITE_OK {
			return rc
		}
		return method[func(*libc.TLS, uintptr, int32) int32](l.given.FxSync)(tls, file, flags)
	}
	l.size = func(tls *libc.TLS, file, size uintptr) int32 {
		if rc := l.flush(tls); rc != lib.SQLITE_OK {
			return rc
		}
		return method[func(*libc.TLS, uintptr, uintptr) int32](l.given.FxFileSize)(tls, file, size)
	}
	ours := (*lib.Tsqlite3_io_methods)(at(l.ours))
	*ours = l.given
	ours.FxWrite, ours.FxRead, ours.FxTruncate = pointer(&l.write), pointer(&l.read), pointer(&l.truncate)
	ours.FxSync, ours.FxFileSize = pointer(&l.sync), pointer(&l.size)
	file.FpMethods = l.ours
	c.log = l
	return nil
}

// free gives the memory back after the connection was closed.
func (l *logFile) free(tls *libc.TLS) {
	libc.Xfree(tls, l.ours)
	libc.Xfree(tls, l.memory)
}

// gather takes what SQLite writes.
func (l *logFile) gather(tls *libc.TLS, _, p uintptr, n int32, at int64) int32 {
	if l.used > 0 && (at != l.at+int64(l.used) || l.used+int(n) > gatheredMax) {
		if rc := l.flush(tls); rc != lib.SQLITE_OK {
			return rc
		}
	}
	if n > gatheredMax {
		return l.put(tls, p, n, at)
	}
	if l.used == 0 {
		l.at = at
	}
	copy(bytesAt(l.memory+uintptr(l.used), int(n)), bytesAt(p, int(n)))
	l.used += int(n)
	if n == frameHeader {
		l.ends = binary.BigEndian.Uint32(bytesAt(p+pagesAfter, 4)) != 0
		return lib.SQLITE_OK
	}
	if l.ends {
		return l.flush(tls)
	}
	return lib.SQLITE_OK
}

// flush writes what was gathered. What fails is forgotten, as SQLite does: it is not
// part of the log before a transaction has ended with it.
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
