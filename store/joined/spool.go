package joined

import (
	"bytes"
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// spool is output waiting for an unreachable history: a file for each call, in a directory of the
// node. A file survives the process, and is lost with the disk.
type spool struct {
	dir string // "" keeps output in memory
	max int64

	mu      sync.Mutex
	files   []spoolFile // the oldest first
	bytes   int64
	next    int
	dropped int // dropped chunks, for lack of room or refused for good
}

type spoolFile struct {
	number int
	size   int64
	chunks int
	of     map[attempt]bool
	data   []byte // the content, without a directory
}

type attempt struct {
	run    job.ID
	number int
}

const spoolSuffix = ".chunks"

// openSpool reads the files of an earlier process in a directory.
func openSpool(dir string, most int64) (*spool, error) {
	s := &spool{dir: dir, max: most}
	if dir == "" {
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of output that waits for history: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"+spoolSuffix))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		number, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(name), spoolSuffix))
		if err != nil {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read output that waits for history: %w", err)
		}
		chunks, err := decodeChunks(data)
		if err != nil { // the machine stopped while writing it
			_ = os.Remove(name)
			continue
		}
		s.add(spoolFile{number: number, size: int64(len(data)), chunks: len(chunks), of: attemptsIn(chunks)})
	}
	slices.SortFunc(s.files, func(a, b spoolFile) int { return cmp.Compare(a.number, b.number) })
	return s, nil
}

func (s *spool) add(f spoolFile) {
	s.files = append(s.files, f)
	s.bytes += f.size
	s.next = max(s.next, f.number+1)
}

func attemptsIn(chunks []store.OutputChunk) map[attempt]bool {
	of := map[attempt]bool{}
	for i := range chunks {
		of[attempt{chunks[i].Run, chunks[i].Attempt}] = true
	}
	return of
}

func decodeChunks(data []byte) (chunks []store.OutputChunk, err error) {
	err = gob.NewDecoder(bytes.NewReader(data)).Decode(&chunks)
	return chunks, err
}

func (s *spool) path(number int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%012d%s", number, spoolSuffix))
}

// put stores chunks. If the spool is full, it drops the oldest.
func (s *spool) put(chunks []store.OutputChunk) error {
	var data bytes.Buffer
	if err := gob.NewEncoder(&data).Encode(chunks); err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := spoolFile{number: s.next, size: int64(data.Len()), chunks: len(chunks), of: attemptsIn(chunks)}
	if s.dir == "" {
		f.data = data.Bytes()
	} else {
		beside := s.path(f.number) + ".new"
		if err := os.WriteFile(beside, data.Bytes(), 0o600); err != nil {
			return fmt.Errorf("keep output until history is back: %w", err)
		}
		if err := os.Rename(beside, s.path(f.number)); err != nil {
			return fmt.Errorf("keep output until history is back: %w", err)
		}
	}
	s.add(f)
	for s.bytes > s.max && len(s.files) > 1 {
		s.dropped += s.files[0].chunks
		if err := s.removeFirst(); err != nil {
			return err
		}
	}
	return nil
}

// removeFirst removes the oldest file. The spool is locked.
func (s *spool) removeFirst() error {
	f := s.files[0]
	if s.dir != "" {
		if err := os.Remove(s.path(f.number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	s.files = s.files[1:]
	s.bytes -= f.size
	return nil
}

func (s *spool) read(f spoolFile) ([]store.OutputChunk, error) {
	data := f.data
	if s.dir != "" {
		var err error
		if data, err = os.ReadFile(s.path(f.number)); err != nil {
			return nil, err
		}
	}
	return decodeChunks(data)
}

// oldest returns the chunks that have waited longest, with the number of their file; none if
// nothing waits.
func (s *spool) oldest() (chunks []store.OutputChunk, number int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.files) > 0 {
		chunks, err := s.read(s.files[0])
		if err == nil {
			return chunks, s.files[0].number, nil
		}
		s.dropped += s.files[0].chunks
		if err := s.removeFirst(); err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, nil
}

// taken removes a file that history has, unless it was dropped already.
func (s *spool) taken(number int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.files) > 0 && s.files[0].number == number {
		return s.removeFirst()
	}
	return nil
}

// lose counts chunks that history can never accept.
func (s *spool) lose(chunks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped += chunks
}

// isEmpty reports whether no output waits.
func (s *spool) isEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files) == 0
}

// of returns the chunks of an attempt, from a number on.
func (s *spool) of(run job.ID, number, fromSeq int) (list []store.OutputChunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if !f.of[attempt{run, number}] {
			continue
		}
		chunks, err := s.read(f)
		if err != nil {
			continue
		}
		for _, c := range chunks {
			if c.Run != run || c.Attempt != number {
				continue
			}
			list = slices.DeleteFunc(list, func(o store.OutputChunk) bool { return o.Seq >= c.DropFrom && o.Seq < c.DropTo })
			if c.Seq >= fromSeq {
				list = append(list, c)
			}
		}
	}
	return list
}

// state returns the number of waiting bytes, and of dropped chunks.
func (s *spool) state() (bytes int64, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes, s.dropped
}
