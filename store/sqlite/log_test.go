package sqlite

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/belfry-cron/belfry/store"
)

// logged is a database with a gathered log, and what becomes of the calls by which the
// log is written. Each transaction gives all of its rows the next value.
type logged struct {
	t     *testing.T
	path  string
	c     *conn
	value int64 // of the transaction that was acknowledged last
	calls int   // of the system

	// onWrite and onSync stand for a call of the system, which real does.
	onWrite func(n int32, real func(n int32) int32) int32
	onSync  func(real func() int32) int32

	write func(tls *libc.TLS, file, p uintptr, n int32, at int64) int32
	sync  func(tls *libc.TLS, file uintptr, flags int32) int32
}

// loggedRows are more than are written at once.
const loggedRows = 600

func newLogged(t *testing.T) *logged {
	t.Helper()
	l := &logged{t: t, path: filepath.Join(t.TempDir(), "log.db")}
	c, err := connect(l.path, true, fmt.Sprintf(`create table t (n integer primary key, value integer unique, b blob);
		with recursive s(n) as (select 1 union all select n + 1 from s where n < %d)
		insert into t (n, value, b) select n, n, zeroblob(500) from s`, loggedRows))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.gatherLog(); err != nil {
		t.Fatal(err)
	}
	l.attach(c)
	return l
}

// attach stands between a connection and the system.
func (l *logged) attach(c *conn) {
	l.c = c
	write := method[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](c.log.given.FxWrite)
	sync := method[func(*libc.TLS, uintptr, int32) int32](c.log.given.FxSync)
	l.write = func(tls *libc.TLS, file, p uintptr, n int32, at int64) int32 {
		l.calls++
		if l.onWrite == nil {
			return write(tls, file, p, n, at)
		}
		return l.onWrite(n, func(n int32) int32 { return write(tls, file, p, n, at) })
	}
	l.sync = func(tls *libc.TLS, file uintptr, flags int32) int32 {
		if l.onSync == nil {
			return sync(tls, file, flags)
		}
		return l.onSync(func() int32 { return sync(tls, file, flags) })
	}
	c.log.given.FxWrite, c.log.given.FxSync = pointer(&l.write), pointer(&l.sync)
}

// change gives the rows the next value in a transaction, and gives more than one of the
// pages several contents on the way.
func (l *logged) change() error {
	err := l.c.exec("begin immediate; update t set b = randomblob(500)")
	if err == nil {
		err = l.c.exec(fmt.Sprintf("update t set value = n + %d, b = zeroblob(500)", (l.value+1)*loggedRows))
	}
	if err == nil {
		err = l.c.commit()
	}
	if err != nil && l.c.inTransaction() {
		l.t.Fatalf("a transaction that failed is still open: %v", err)
	}
	if err == nil {
		l.value++
	}
	return err
}

// check looks whether a database is whole and its rows have one value, and returns it.
func (l *logged) check(path string) int64 {
	l.t.Helper()
	c, err := connect(path, false, "")
	if err == nil {
		err = c.exec("pragma synchronous = off") // it writes back what a crash has left
	}
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.close()
	return l.valueOf(c)
}

func (l *logged) valueOf(c *conn) (value int64) {
	l.t.Helper()
	whole, count := "", int64(0)
	q := c.stmt("pragma integrity_check(1)")
	for q.next() {
		whole = q.text()
	}
	if err := q.err(); err != nil || whole != "ok" {
		l.t.Fatalf("the database is not whole: %v %s", err, whole)
	}
	q = c.stmt(fmt.Sprintf("select (value - n) / %d, count(*) from t where b = zeroblob(500) group by 1", loggedRows))
	for q.next() {
		value, count = q.int(), q.int()
	}
	if err := q.err(); err != nil || count != loggedRows {
		l.t.Fatalf("%d rows have the value %d: %v", count, value, err)
	}
	return value
}

// A machine that loses its power, or a process that is killed, in the middle of a write
// or between two leaves all that was acknowledged, and nothing by halves.
func TestACrashInTheMiddleOfTheLog(t *testing.T) {
	l := newLogged(t)
	dir := t.TempDir()
	crash := func(log []byte) int64 {
		t.Helper()
		path := filepath.Join(dir, "log.db")
		text, err := os.ReadFile(l.path)
		if err == nil {
			err = errors.Join(os.WriteFile(path, text, 0o600), os.WriteFile(path+"-wal", log, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		return l.check(path)
	}
	read := func() []byte {
		t.Helper()
		log, err := os.ReadFile(l.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	killed := func() {
		t.Helper()
		if v := crash(read()); v != l.value && v != l.value+1 {
			t.Fatalf("after a kill there is the value %d, want %d", v, l.value)
		}
	}
	synced := []byte(nil)
	every := 0
	l.onWrite = func(n int32, real func(int32) int32) int32 {
		if l.calls%every > 0 {
			return real(n)
		}
		real(n / 2)
		killed()
		rc := real(n)
		killed()
		return rc
	}
	l.onSync = func(real func() int32) int32 {
		rc := real()
		synced = read()
		return rc
	}
	for _, pages := range []int{2000, 60, 2000} {
		if every = 1; pages < 100 {
			every = 61 // of thousands: what has no room is written by the page
		}
		if err := l.c.exec(fmt.Sprintf("pragma cache_size = %d", pages)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := l.change(); err != nil {
				t.Fatal(err)
			}
			if v := crash(synced); v != l.value {
				t.Fatalf("of what had reached the disk is the value %d, want %d", v, l.value)
			}
			if v := l.check(l.path); v != l.value {
				t.Fatalf("another connection sees the value %d, want %d", v, l.value)
			}
		}
		if _, _, err := l.c.checkpoint(passive); err != nil {
			t.Fatal(err)
		}
	}
}

// A write or a wait for the disk that fails is told to the transaction that it belongs
// to, and to no other.
func TestAWriteOfTheLogThatFails(t *testing.T) {
	for _, c := range []struct {
		name string
		code int32
		sync bool
	}{
		{"the disk is full", lib.SQLITE_FULL, false},
		{"the disk is broken", lib.SQLITE_IOERR_WRITE, false},
		{"the disk is not reached", lib.SQLITE_IOERR_FSYNC, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLogged(t)
			for nth := 0; ; nth++ { // fails
				left := nth
				fails := func() bool { left--; return left == -1 }
				if c.sync {
					l.onSync = func(real func() int32) int32 {
						if fails() {
							return c.code
						}
						return real()
					}
				} else {
					l.onWrite = func(n int32, real func(int32) int32) int32 {
						if fails() {
							real(n / 2)
							return c.code
						}
						return real(n)
					}
				}
				err := l.change()
				l.onWrite, l.onSync = nil, nil
				of := (*failure)(nil)
				if left < 0 && (!errors.As(err, &of) || of.code != c.code) || left >= 0 && err != nil {
					t.Fatalf("call %d: got %v, want %d", nth, err, c.code)
				}
				if v := l.valueOf(l.c); v != l.value {
					t.Fatalf("call %d: the value is %d, want %d", nth, v, l.value)
				}
				if v := l.check(l.path); v != l.value {
					t.Fatalf("call %d: others see the value %d, want %d", nth, v, l.value)
				}
				if left >= 0 {
					return
				}
				if nth%2 == 0 { // the log goes on, or begins anew
					if _, _, err := l.c.checkpoint(passive); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// A statement that fails because the disk is full may be undone by itself. What the rest
// of its transaction had no room for in memory is in the log then.
func TestAStatementThatFailsLeavesTheRestOfItsTransactionInTheLog(t *testing.T) {
	l := newLogged(t)
	if err := l.c.exec("create table more (n integer primary key, b blob); pragma cache_size = 20"); err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		nth := i % 4 // call fails, counted from where a statement begins
		text := "begin immediate; with recursive s(n) as (select 1 union all select n + 1 from s where n < %d) insert into more select n, zeroblob(1500) from s"
		rows := 100 + i
		if err := l.c.exec(fmt.Sprintf(text, rows) + "; savepoint call"); err != nil {
			t.Fatal(err)
		}
		left := nth
		l.onWrite = func(n int32, real func(int32) int32) int32 {
			if left--; left == -1 {
				return lib.SQLITE_FULL
			}
			return real(n)
		}
		err := l.c.exec("update t set value = value + 100 * 600")
		l.onWrite = nil
		want := int64(0)
		if l.c.inTransaction() {
			if err := errors.Join(l.c.exec("rollback to call; release call"), l.c.commit()); err != nil {
				t.Fatal(err)
			}
			want = int64(rows)
		} else if err == nil {
			t.Fatal("a transaction has ended without an error")
		}
		l.valueOf(l.c)
		l.check(l.path)
		if n, err := number(l.c, "select count(*) from more where b = zeroblob(1500)"); err != nil || n != want {
			t.Fatalf("call %d: there are %d rows, want %d: %v", nth, n, want, err)
		}
		if err := l.c.exec("delete from more"); err != nil {
			t.Fatal(err)
		}
	}
}

// What is held back is written before SQLite does anything else with the file, or that
// fails as well; and it is not held back any longer then.
func TestWhatIsHeldBackOfTheLogIsWrittenFirst(t *testing.T) {
	const held, frame = 100, 24
	for _, c := range []struct {
		name string
		does func(l *logFile, tls *libc.TLS, p uintptr) int32
		want string
	}{
		{"a read", func(l *logFile, tls *libc.TLS, p uintptr) int32 { return l.read(tls, l.file, p, frame, held) }, "write 100 at 32, read 24 at 100"},
		{"a wait for the disk", func(l *logFile, tls *libc.TLS, p uintptr) int32 { return l.sync(tls, l.file, 1) }, "write 100 at 32, sync"},
		{"a write elsewhere", func(l *logFile, tls *libc.TLS, p uintptr) int32 { return l.write(tls, l.file, p, frame, 32) }, "write 100 at 32"},
		{"more than there is room for", func(l *logFile, tls *libc.TLS, p uintptr) int32 {
			return l.write(tls, l.file, p, gatheredMax, 32+held)
		}, "write 100 at 32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLogged(t)
			log, tls := l.c.log, l.c.tls
			given := log.given
			p := libc.Xmalloc(tls, gatheredMax)
			defer libc.Xfree(tls, p)
			did, code := []string(nil), int32(0)
			write := func(_ *libc.TLS, _, _ uintptr, n int32, at int64) int32 {
				did = append(did, fmt.Sprintf("write %d at %d", n, at))
				return code
			}
			read := func(_ *libc.TLS, _, _ uintptr, n int32, at int64) int32 {
				did = append(did, fmt.Sprintf("read %d at %d", n, at))
				return lib.SQLITE_OK
			}
			sync := func(*libc.TLS, uintptr, int32) int32 {
				did = append(did, "sync")
				return lib.SQLITE_OK
			}
			log.given.FxWrite, log.given.FxRead, log.given.FxSync = pointer(&write), pointer(&read), pointer(&sync)
			defer func() { log.given = given }()
			for code = range int32(2) {
				did, log.gathers, log.used = nil, true, 0
				for at := range int64(2) {
					if rc := log.write(tls, log.file, p, held/2, 32+at*held/2); rc != lib.SQLITE_OK || len(did) > 0 {
						t.Fatalf("%d, and %v, want that it is held back", rc, did)
					}
				}
				rc, want := c.does(log, tls, p), c.want
				if code != lib.SQLITE_OK {
					want, _, _ = strings.Cut(want, ",")
					if log.used > 0 {
						t.Error("what failed is held back still")
					}
				}
				if got := strings.Join(did, ", "); rc != code || got != want {
					t.Errorf("got %q and %d, want %q and %d", got, rc, want, code)
				}
			}
			log.used = held
			if err := l.c.commit(); err == nil || log.used > 0 || log.gathers {
				t.Errorf("a transaction that was not there has ended: %v, %d bytes", err, log.used)
			}
		})
	}
}

// A transaction takes few calls of the system, and what is undone leaves nothing that is
// written later.
func TestTheLogIsGathered(t *testing.T) {
	l := newLogged(t)
	if err := l.change(); err != nil {
		t.Fatal(err)
	}
	if pages := loggedRows * 500 / 4096; l.calls > pages/10 {
		t.Errorf("%d calls of the system wrote some %d pages", l.calls, pages)
	}
	if err := l.c.exec(`pragma cache_size = 20; begin immediate;
		with recursive s(n) as (select 1001 union all select n + 1 from s where n < 2000)
		insert into t (n, value, b) select n, -n, randomblob(500) from s`); err != nil {
		t.Fatal(err)
	}
	l.calls = 0
	if err := l.c.exec("rollback"); err != nil {
		t.Fatal(err)
	}
	if v := l.valueOf(l.c); v != l.value || l.calls > 0 {
		t.Errorf("the value is %d, want %d, and %d calls wrote what was undone", v, l.value, l.calls)
	}
}

func TestAStoreGathersItsLog(t *testing.T) {
	const pages = 200
	s := open(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	l := &logged{t: t}
	write := func(do func(t *tx)) {
		t.Helper()
		if err := s.write(t.Context(), func(t *tx) error { do(t); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	write(func(t *tx) { l.attach(t.conn) })
	chunk := store.OutputChunk{Run: (&tally{}).next(), Attempt: 1, Data: make([]byte, pages*4096)}
	if err := s.AppendOutput(t.Context(), []store.OutputChunk{chunk}); err != nil {
		t.Fatal(err)
	}
	write(func(*tx) {
		if l.calls == 0 || l.calls > pages/10 {
			t.Errorf("%d calls of the system wrote some %d pages", l.calls, pages)
		}
	})
}

// backupEnv makes the test binary a process that backs a database up whenever it is
// asked to on its standard input, and tells how many chunks of output the copy has.
const backupEnv = "BELFRY_SQLITE_TEST_BACKUP"

func backUpWhenAsked(t *testing.T, path string) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		to := filepath.Join(t.TempDir(), "copy.db")
		if err := Backup(t.Context(), path, to); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{path, to} {
			if complete, err := Check(t.Context(), file); err != nil || !complete {
				t.Fatalf("%s is not whole: %v", file, err)
			}
		}
		c, err := openConn(to, false)
		if err != nil {
			t.Fatal(err)
		}
		n, err := number(c, "select count(*) from output")
		if err = errors.Join(err, c.close()); err != nil {
			t.Fatal(err)
		}
		fmt.Println("chunks", n)
	}
}

// Another process that reads the files while they are written sees all that was
// acknowledged before.
func TestAnotherProcessBacksUpWhileTheLogIsWritten(t *testing.T) {
	if path := os.Getenv(backupEnv); path != "" {
		backUpWhenAsked(t, path)
		return
	}
	const chunks = 5 // of a call, more than is written at once
	s := open(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), backupEnv+"="+s.path)
	cmd.Stderr = os.Stderr
	ask, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ids, acknowledged := &tally{}, int64(0)
	write := func(stop <-chan struct{}) error {
		for range 100 { // the files do not grow for ever if the other process is slow
			select {
			case <-stop:
				return nil
			default:
			}
			list := make([]store.OutputChunk, chunks)
			run := ids.next()
			for i := range list {
				list[i] = store.OutputChunk{Run: run, Attempt: 1, Seq: i, Data: make([]byte, 30_000)}
			}
			if err := s.AppendOutput(t.Context(), list); err != nil {
				return err
			}
			acknowledged += chunks
		}
		return nil
	}
	lines := bufio.NewScanner(out)
	for range 4 {
		before, n := acknowledged, int64(-1)
		stop, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- write(stop) }()
		fmt.Fprintln(ask, "again")
		if lines.Scan() {
			fmt.Sscanf(lines.Text(), "chunks %d", &n)
		}
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
			break
		}
		if n < before || n > acknowledged || n%chunks != 0 {
			t.Errorf("the copy has %q, want %d to %d", lines.Text(), before, acknowledged)
			break
		}
	}
	if err := errors.Join(ask.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}
