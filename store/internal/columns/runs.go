package columns

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// IsOwnSlot reports whether a slot is the job's own, which rows leave out.
func IsOwnSlot(slot string, uid job.ID) bool { return slot == uid.String() }

// ownSlot replaces the job's own slot in history.
const ownSlot = "."

// StoredSlot returns a slot as a row of history stores it.
func StoredSlot(slot string, uid job.ID) string {
	if slot != "" && IsOwnSlot(slot, uid) {
		return ownSlot
	}
	return slot
}

// Slot is the inverse of [StoredSlot].
func Slot(stored string, uid job.ID) string {
	if stored == ownSlot {
		return uid.String()
	}
	return stored
}

// Key returns the key of a run that was read; without a key it is the scheduled time.
func Key(r *job.Run) string {
	if r.Key == "" {
		return engine.KeyOf(r.Scheduled)
	}
	return r.Key
}

// StoredKey returns the key of a run for its row: empty if it is the scheduled time.
func StoredKey(r *job.Run) string {
	if r.Kind == job.RunScheduled || r.Kind == job.RunBackfill && r.Key == engine.KeyOf(r.Scheduled) {
		return ""
	}
	return r.Key
}

// StoredLostAfter returns [LostAfter] of a run in nanoseconds, the last bit of which is Unfenced:
// a Belfry that does not know the bit waits a nanosecond longer.
func StoredLostAfter(r *store.Run) int64 {
	n := int64(r.LostAfter) &^ 1
	if r.Unfenced {
		n |= 1
	}
	return n
}

// LostAfter is the inverse of [StoredLostAfter].
func LostAfter(stored int64) (lostAfter time.Duration, unfenced bool) {
	return time.Duration(stored &^ 1), stored&1 == 1
}

// EncodeParams encodes parameters as JSON, or as nil if there are none.
func EncodeParams(p map[string]string) ([]byte, error) {
	if len(p) == 0 {
		return nil, nil
	}
	return json.Marshal(p)
}

// Params is the inverse of [EncodeParams].
func Params(text []byte) map[string]string {
	if len(text) == 0 {
		return nil
	}
	var p map[string]string
	// EncodeParams wrote it; unreadable parameters count as none.
	_ = json.Unmarshal(text, &p)
	return p
}

// Flow returns the decoded state of a flow, nil if there is none.
func Flow(text []byte) []byte {
	if len(text) == 0 {
		return nil
	}
	return bytes.Clone(text)
}
