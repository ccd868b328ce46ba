package wrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/remote/spool"
	"github.com/belfry-cron/belfry/job"
)

const (
	// entriesMax and bytesMax bound the spool: a machine whose server is away for days must not
	// fill its disk. A command each minute reaches the first in most of a day.
	entriesMax = 1000
	bytesMax   = 64 << 20
	// ageMax is the age at which an unsent report is dropped.
	ageMax = 7 * 24 * time.Hour
)

// Spool is a directory of a user with what commands have to report, a file each, and with
// their locks. Any number of processes share it.
type Spool struct {
	*spool.Dir
	// refused is why the directory must not be used, or nil.
	refused error
	// Its bounds.
	entries int
	bytes   int64
}

// OpenSpool opens a spool, and creates it if necessary.
func OpenSpool(dir string) (*Spool, error) {
	d, err := spool.Open(dir, "locks")
	return &Spool{d, err, entriesMax, bytesMax}, err
}

// List returns the files of the spool, the oldest first.
func (s *Spool) List() ([]spool.File, error) {
	if s.refused != nil {
		return nil, s.refused
	}
	return s.Dir.List()
}

// entry is the data to report about one start of a command.
type entry struct {
	Server    string          `json:"server"` // address of its server
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Document  json.RawMessage `json:"document,omitempty"`
	Key       string          `json:"key"`
	Started   time.Time       `json:"started"`
	Locked    bool            `json:"locked,omitempty"` // the command holds its job's lock
	// Run is the server's run for the start.
	Run job.ID `json:"run,omitzero"`
	// End is nil as long as the command is running.
	End *client.Report `json:"end,omitempty"`
	// fresh is set in the process that started the command: spooled entries may have an older
	// definition of the job than the server.
	fresh bool
}

// begin records a running command: if this process ends without its result, another process
// notices.
func (s *Spool) begin(e *entry) (*spool.Record, error) {
	if s.refused != nil {
		return nil, s.refused
	}
	list, _ := s.List() // the next steps report an error
	if s.makeRoom(list, 0); len(list) >= s.entries+running {
		return nil, fmt.Errorf("%s has %d reports of commands that are running", s.Path(), len(list))
	}
	data, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return s.Create(e.Key, data)
}

// running is how many commands may run besides the reports that wait: they have files too.
const running = 1000

// note appends new information about an entry to its record. The last line of a file
// counts, unless it is cut off.
func note(r *spool.Record, e *entry) {
	if data, err := json.Marshal(e); err == nil {
		_ = r.Add(data) // without it the run is found by the key of its start
	}
}

// end replaces the record of a command, which may be nil, by its result. Without room it drops
// output, then the oldest reports.
func (s *Spool) end(was *spool.Record, e *entry) (r *spool.Record, dropped int, err error) {
	defer was.Release()
	list, err := s.List()
	if err != nil {
		return nil, 0, err
	}
	if was == nil {
		list = append(list, spool.File{})
	}
	data, err := json.Marshal(e)
	if err == nil && spool.Total(list)+int64(len(data)) > s.bytes {
		long, short := *e, *e.End
		short.Output, long.End = "", &short
		data, err = json.Marshal(&long)
	}
	if err != nil {
		return nil, 0, err
	}
	dropped = s.makeRoom(list, int64(len(data)))
	r, err = s.Replace(e.Key, data)
	return r, dropped, err
}

// makeRoom drops the oldest reports until one more fits, and returns how many. Records of running
// commands stay.
func (s *Spool) makeRoom(list []spool.File, size int64) (dropped int) {
	count, sum := len(list), spool.Total(list)
	for _, w := range list {
		if count <= s.entries && sum+size <= s.bytes {
			break
		}
		r, e := open(w.Path)
		if r == nil {
			continue
		}
		if e == nil || e.End != nil {
			r.Remove()
			count--
			sum -= w.Size
			dropped++
		}
		r.Release()
	}
	return dropped
}

// reportMax is many times what the file of a report has.
const reportMax = 8 << 20

// open locks a record that no process has. It returns no record if one has, and no entry if
// the file has none.
func open(path string) (*spool.Record, *entry) {
	r, lines := spool.Take(path, reportMax)
	var last *entry
	for _, line := range lines {
		var e entry
		if json.Unmarshal(line, &e) == nil {
			last = &e
		}
	}
	return r, last
}

// lock is the lock of a job.
type lock struct{ file *os.File }

// A process that sends reports locks for an instant to see whether a command is still running,
// which must not skip a command.
const (
	lockTries = 3
	lockPause = 20 * time.Millisecond
)

// lock locks a job for this process and the command, or returns nil if it is locked.
func (s *Spool) lock(namespace, name string) (*lock, error) {
	if s.refused != nil {
		return nil, s.refused
	}
	path := s.Path("locks", url.PathEscape(namespace+"/"+name))
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

// release ends the lock, even for processes that the command has left running.
func (l *lock) release() {
	if l == nil || l.file == nil {
		return
	}
	_ = syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN)
	l.file.Close()
	l.file = nil
}

// isKnown reports whether the server has this definition of a job, by the spool's record.
func (s *Spool) isKnown(e *entry) bool {
	if s.refused != nil {
		return false
	}
	data, err := os.ReadFile(s.definition(e))
	return err == nil && bytes.Equal(data, e.Document)
}

// know records the definition that a server has accepted.
func (s *Spool) know(e *entry) {
	if s.refused != nil {
		return
	}
	path := s.definition(e)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		_ = os.WriteFile(path, e.Document, 0o600) // without it the server gets the definition again
	}
}

func (s *Spool) forget(e *entry) {
	if s.refused != nil {
		return
	}
	_ = os.Remove(s.definition(e)) // the server gets the definition anyway
}

func (s *Spool) definition(e *entry) string {
	return s.Path("jobs", url.PathEscape(e.Server), url.PathEscape(e.Namespace+"/"+e.Name))
}
