package watchdog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// The journal is a table of slots in one file. Each is written by one pwrite, so that writes before
// the death of a process are visible to the next reader: the watchdog, or the next node. The file
// is not synced: when the machine dies, so do its processes, and another boot id invalidates the
// file.

const (
	fileName = "watchdog.journal"
	magic    = "belfryW2"

	headerSize = 512
	slotSize   = 512
	// slotsMax bounds the attempts in a journal: far more than a machine can run at once, in a file
	// of 32 MiB.
	slotsMax = 1 << 16
	// keptAt is the place of Kept in a slot.
	keptAt = 72 + cgroupMax
	// cgroupMax is the longest path of a cgroup that fits into a slot.
	cgroupMax = slotSize - 128
	// markSize is the size of the watchdog's part at the end of a slot, and sumSize of the checksum
	// of the node's part before it.
	sumSize, markSize = 4, 4
)

// State is the progress of an attempt on this machine.
type State uint8

// The states of an attempt.
const (
	// Announced is an attempt that may have begun. The id of its process, if any, is not known.
	Announced State = 1 + iota
	// Spawned is a process whose id is known.
	Spawned
	// Ended is an attempt without running processes whose result the store has not
	// acknowledged.
	Ended
)

// Key names an attempt.
type Key struct {
	Run    job.ID
	Number int
}

// Entry is the journal's record of an attempt.
type Entry struct {
	Key
	State State
	// Command is set for an attempt that is a process of this machine.
	Command bool
	// PID is the process, which leads its process group; zero until it is known.
	PID int
	// Cgroup is the folder of the process's cgroup, or its container after containerPrefix, or "".
	Cgroup string
	// Grace is the time between asking the process to end and killing it.
	Grace time.Duration
	// Fence is how long after the last acknowledged renewal the process is
	// ended; 0 for never.
	Fence time.Duration

	// Kept is set for a container that the next node on the machine can continue to follow.
	Kept bool

	// announced and spawned are readings of the boot clock, between which the
	// process began: another one that got its number began later.
	announced, spawned time.Duration
	// renewed is the last renewal at the announcement. The watchdog may receive it later, or not at
	// all if the node stops then.
	renewed time.Duration
}

// Journal is what was read from a journal.
type Journal struct {
	// Complete is set if the entries include each attempt that began on this machine and has no
	// acknowledged result. It is not set after a crash of the machine, or for a new file: then a
	// missing attempt may have begun.
	Complete bool
	Entries  map[Key]Entry
}

// Began reports whether an attempt may have taken effect. If not, another node can run the attempt.
func (j Journal) Began(k Key) bool {
	_, ok := j.Entries[k]
	return ok || !j.Complete
}

func newJournal(complete bool, slots []slot) Journal {
	j := Journal{Complete: complete, Entries: make(map[Key]Entry, len(slots))}
	for _, s := range slots {
		j.Entries[s.Key] = s.Entry
	}
	return j
}

// table reads and writes the slots of the file.
type table struct{ file *os.File }

// slot is an entry with its place.
type slot struct {
	Entry
	index int
}

// header is the state of the journal as a whole.
type header struct {
	boot     string
	complete bool
	// renewed is the last renewal, for the next node if the watchdog was killed, too.
	renewed time.Duration
}

func (t table) writeHeader(h header) error {
	var b [headerSize]byte
	copy(b[:], magic)
	if h.complete {
		b[8] = 1
	}
	copy(b[16:64], h.boot)
	order.PutUint64(b[64:], uint64(h.renewed))
	seal(b[:])
	if _, err := t.file.WriteAt(b[:], 0); err != nil {
		return fmt.Errorf("write the watchdog's journal: %w", err)
	}
	return nil
}

// write puts an entry into its slot. An entry without a state frees the slot.
func (t table) write(s slot) error { return t.put(s, slotSize) }

// change is write for an attempt that already has the slot, and keeps its mark.
func (t table) change(s slot) error { return t.put(s, slotSize-markSize) }

func (t table) put(s slot, size int) error {
	var b [slotSize]byte
	if s.State != 0 {
		encode(b[:], s.Entry)
		seal(b[:])
	}
	if _, err := t.file.WriteAt(b[:size], headerSize+int64(s.index)*slotSize); err != nil {
		return fmt.Errorf("write the watchdog's journal: %w", err)
	}
	return nil
}

// mark records in a slot that the watchdog has asked its attempt to end. The node may reuse
// the slot in the meantime, so only the mark is written, with the identity of the attempt.
func (t table) mark(s slot) error {
	_, err := t.file.WriteAt(order.AppendUint32(nil, s.Key.sum()), markAt(s.index))
	return err
}

// marked reports whether a slot has the mark of its attempt.
func (t table) marked(s slot) bool {
	var b [markSize]byte
	_, err := t.file.ReadAt(b[:], markAt(s.index))
	return err == nil && order.Uint32(b[:]) == s.Key.sum()
}

// has reports whether a slot still has its attempt, which may have processes.
func (t table) has(s slot) bool {
	var b [slotSize]byte
	if _, err := t.file.ReadAt(b[:], headerSize+int64(s.index)*slotSize); err != nil || !sealed(b[:]) {
		return false
	}
	e := decode(b[:])
	return e.Key == s.Key && e.alive()
}

func markAt(index int) int64 {
	return headerSize + int64(index+1)*slotSize - markSize
}

// sum is a number for the attempt, which is not 0.
func (k Key) sum() uint32 {
	return crc32.ChecksumIEEE(order.AppendUint64(append([]byte(nil), k.Run[:]...), uint64(k.Number))) | 1
}

// renewed returns the last renewal in the header, 0 if there is none.
func (t table) renewed() time.Duration {
	var b [headerSize]byte
	if _, err := t.file.ReadAt(b[:], 0); err != nil || !sealed(b[:]) {
		return 0
	}
	return time.Duration(order.Uint64(b[64:]))
}

// read returns all entries. A slot that cannot be read counts as free, and then the journal is not
// complete. The journal of another boot has no entries, since its processes are gone.
func (t table) read(boot string) (complete bool, slots []slot, err error) {
	b, err := io.ReadAll(io.NewSectionReader(t.file, 0, headerSize+slotsMax*slotSize))
	if err != nil {
		return false, nil, fmt.Errorf("read the watchdog's journal: %w", err)
	}
	if len(b) < headerSize || string(b[:8]) != magic || !sealed(b[:headerSize]) {
		return false, nil, nil
	}
	var want [48]byte
	copy(want[:], boot)
	if string(b[16:64]) != string(want[:]) {
		return false, nil, nil
	}
	complete = b[8] == 1
	b = b[headerSize:]
	for i := 0; len(b) >= slotSize; i, b = i+1, b[slotSize:] {
		one := b[:slotSize]
		if one[0] == 0 {
			continue
		}
		if !sealed(one) {
			complete = false
			continue
		}
		slots = append(slots, slot{Entry: decode(one), index: i})
	}
	return complete, slots, nil
}

var order = binary.LittleEndian

func encode(b []byte, e Entry) {
	b[0] = byte(e.State)
	if e.Command {
		b[1] = 1
	}
	order.PutUint16(b[2:], uint16(len(e.Cgroup)))
	order.PutUint32(b[4:], uint32(e.PID))
	order.PutUint64(b[8:], uint64(e.Number))
	order.PutUint64(b[16:], uint64(e.Grace))
	order.PutUint64(b[24:], uint64(e.Fence))
	order.PutUint64(b[32:], uint64(e.announced))
	order.PutUint64(b[40:], uint64(e.spawned))
	copy(b[48:64], e.Run[:])
	order.PutUint64(b[64:], uint64(e.renewed))
	copy(b[72:72+cgroupMax], e.Cgroup)
	if e.Kept {
		b[keptAt] = 1
	}
}

func decode(b []byte) Entry {
	e := Entry{
		State:     State(b[0]),
		Command:   b[1] == 1,
		PID:       int(order.Uint32(b[4:])),
		Grace:     time.Duration(order.Uint64(b[16:])),
		Fence:     time.Duration(order.Uint64(b[24:])),
		announced: time.Duration(order.Uint64(b[32:])),
		spawned:   time.Duration(order.Uint64(b[40:])),
		renewed:   time.Duration(order.Uint64(b[64:])),
		Kept:      b[keptAt] == 1,
	}
	e.Number = int(order.Uint64(b[8:]))
	copy(e.Run[:], b[48:64])
	e.Cgroup = string(b[72 : 72+min(int(order.Uint16(b[2:])), cgroupMax)])
	return e
}

// seal appends a checksum of the bytes before it, and sealed verifies it.
func seal(b []byte) {
	end := len(b) - sumSize - markSize
	order.PutUint32(b[end:], crc32.ChecksumIEEE(b[:end]))
}

func sealed(b []byte) bool {
	end := len(b) - sumSize - markSize
	return order.Uint32(b[end:]) == crc32.ChecksumIEEE(b[:end])
}
