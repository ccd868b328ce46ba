package wrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

const (
	// entriesMax and bytesMax bound the spool: a machine whose server is away for days must
	// keep its disk. A line of each minute fills the first in most of a day.
	entriesMax = 1000
	bytesMax   = 64 << 20
	// ageMax is when a report is given up that no server takes.
	ageMax = 7 * 24 * time.Hour
)

// Spool is a directory of a user with what commands have to report, a file each, and with
// their locks. Any number of processes share it.
type Spool struct {
	dir string
	// Its bounds.
	entries int
	bytes   int64
}

// OpenSpool opens a spool, and makes it if it does not exist. Others must not be able to
// write there: what they put there would be sent with the token of this user.
func OpenSpool(dir string) (*Spool, error) {
	s := &Spool{dir: dir, entries: entriesMax, bytes: bytesMax}
	if err := os.MkdirAll(filepath.Join(dir, "locks"), 0o700); err != nil {
		return s, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return s, err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return s, fmt.Errorf("%s may be written by other users; it should belong to this one and have the mode 0700", dir)
	}
	return s, nil
}

// entry is what there is to report on one start of a command.
type entry struct {
	Server    string          `json:"server"` // the address that it is for
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Document  json.RawMessage `json:"document,omitempty"`
	Key       string          `json:"key"`
	Started   time.Time       `json:"started"`
	Locked    bool            `json:"locked,omitempty"` // the command has the lock of its job
	// Run is the one that a server has made of the start.
	Run job.ID `json:"run,omitzero"`
	// End is nil as long as the command is running.
	End *client.Report `json:"end,omitempty"`
	// fresh is set in the process that has started the command: what waits in the spool may
	// have an older definition of the job than the server.
	fresh bool
}

// record is the file of an entry, and locked as long as its process lives. Nil is one that
// could not be written.
type record struct {
	file *os.File
	path string
}

func (s *Spool) path(e *entry) string { return filepath.Join(s.dir, e.Key+".json") }

// begin writes that a command is running: when this process does not come to say how it ended,
// another one finds that out.
func (s *Spool) begin(e *entry) (*record, error) {
	list, _ := s.list() // what is wrong with it is found by what follows
	if s.makeRoom(list, 0); len(list) >= s.entries+running {
		return nil, fmt.Errorf("%s has %d reports of commands that are running", s.dir, len(list))
	}
	data, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return s.write(data, s.path(e))
}

// running is how many commands may run besides the reports that wait: they have files too.
const running = 1000

// write makes the file of an entry, under a lock.
func (s *Spool) write(data []byte, path string) (*record, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	r := &record{f, path}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		_, err = f.Write(append(data, '\n'))
	}
	if err != nil {
		r.remove()
		r.release()
		return nil, err
	}
	return r, nil
}

// note adds what has become known of an entry. The last line of a file counts, and one that is
// cut off does not.
func (r *record) note(e *entry) {
	if r == nil {
		return
	}
	if data, err := json.Marshal(e); err == nil {
		_, _ = r.file.Write(append(data, '\n')) // without it the run is found by the key of its start
	}
}

// touch notes that the command is alive.
func (r *record) touch() {
	if r != nil {
		now := time.Now()
		_ = os.Chtimes(r.path, now, now) // the reason of a report is less exact without it
	}
}

func (r *record) remove() {
	if r != nil {
		_ = os.Remove(r.path) // another process may have sent it
	}
}

func (r *record) release() {
	if r != nil {
		r.file.Close()
	}
}

// end writes how a command has ended in the place of its record, which may be nil. Reports that
// waited longest are dropped when there is no room, and output before that.
func (s *Spool) end(was *record, e *entry) (r *record, dropped int, err error) {
	defer was.release()
	list, err := s.list()
	if err != nil {
		return nil, 0, err
	}
	if was == nil {
		list = append(list, waiting{})
	}
	data, err := json.Marshal(e)
	if err == nil && total(list)+int64(len(data)) > s.bytes {
		kept, short := *e, *e.End
		short.Output, kept.End = "", &short
		data, err = json.Marshal(&kept)
	}
	if err != nil {
		return nil, 0, err
	}
	dropped = s.makeRoom(list, int64(len(data)))
	fresh := s.path(e) + unfinished
	if r, err = s.write(data, fresh); err != nil {
		return nil, dropped, err
	}
	r.path = s.path(e)
	if err = os.Rename(fresh, r.path); err != nil {
		_ = os.Remove(fresh) // the rename has failed, and says why
		r.release()
		return nil, dropped, err
	}
	return r, dropped, nil
}

// unfinished is the end of the name of a file that is being written.
const unfinished = ".new"

// waiting is a file of the spool.
type waiting struct {
	path string
	size int64
	at   time.Time
}

// list returns the files of entries, the oldest first.
func (s *Spool) list() (list []waiting, err error) {
	names, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := name.Info()
		if err == nil && strings.HasSuffix(name.Name(), unfinished) && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(filepath.Join(s.dir, name.Name())) // of a process that was killed
		}
		if err != nil || !strings.HasSuffix(name.Name(), ".json") {
			continue // it is gone, or of something else
		}
		list = append(list, waiting{filepath.Join(s.dir, name.Name()), info.Size(), info.ModTime()})
	}
	return list, nil
}

func total(list []waiting) (sum int64) {
	for _, w := range list {
		sum += w.size
	}
	return sum
}

// makeRoom drops the oldest reports until one more fits, and returns how many. Commands that
// are running keep theirs.
func (s *Spool) makeRoom(list []waiting, size int64) (dropped int) {
	count, sum := len(list), total(list)
	for _, w := range list {
		if count <= s.entries && sum+size <= s.bytes {
			break
		}
		r, e := s.open(w.path)
		if r == nil {
			continue
		}
		if e == nil || e.End != nil {
			r.remove()
			count--
			sum -= w.size
			dropped++
		}
		r.release()
	}
	return dropped
}

// open locks a record that no process has. It returns no record if one has, and no entry if
// the file has none.
func (s *Spool) open(path string) (*record, *entry) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil
	}
	r := &record{f, path}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		r.release()
		return nil, nil
	}
	// Between both steps another process may have sent it, or written its end.
	mine, err := f.Stat()
	now, gone := os.Stat(path)
	if err != nil || gone != nil || !os.SameFile(mine, now) {
		r.release()
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(f, 8<<20)) // many times what a report has
	if err != nil {
		return r, nil
	}
	var last *entry
	for line := range bytes.Lines(data) {
		var e entry
		if json.Unmarshal(line, &e) == nil {
			last = &e
		}
	}
	return r, last
}

// lock is that of a job.
type lock struct{ file *os.File }

// A process that sends reports has the lock for an instant, to see whether a command is still
// running: that must skip no other.
const (
	lockTries = 3
	lockPause = 20 * time.Millisecond
)

// lock takes the lock of a job for this process and the command, or returns nil if it is
// taken.
func (s *Spool) lock(namespace, name string) (*lock, error) {
	path := filepath.Join(s.dir, "locks", url.PathEscape(namespace+"/"+name))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for try := range lockTries {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return &lock{f}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || try == lockTries-1 {
			break
		}
		time.Sleep(lockPause)
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}

// release ends the lock, also for processes that the command has left behind.
func (l *lock) release() {
	if l == nil || l.file == nil {
		return
	}
	_ = syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN)
	l.file.Close()
	l.file = nil
}

// isKnown tells whether a server has this definition of a job, as far as this spool knows.
func (s *Spool) isKnown(e *entry) bool {
	data, err := os.ReadFile(s.definition(e))
	return err == nil && bytes.Equal(data, e.Document)
}

// know notes the definition that a server has taken.
func (s *Spool) know(e *entry) {
	path := s.definition(e)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		_ = os.WriteFile(path, e.Document, 0o600) // without it the server gets it again
	}
}

func (s *Spool) forget(e *entry) {
	_ = os.Remove(s.definition(e)) // the server gets the definition in any case
}

func (s *Spool) definition(e *entry) string {
	return filepath.Join(s.dir, "jobs", url.PathEscape(e.Server), url.PathEscape(e.Namespace+"/"+e.Name))
}
