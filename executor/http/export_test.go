package httpexec

import "time"

// Transports returns how many transports are kept.
func (e *Executor) Transports() int { return len(e.pool.Load().byTLS) }

// UnmatchedJSON is unmatchedJSON.
var UnmatchedJSON = unmatchedJSON

// RestAfterShortage sets how long an attempt keeps its place in a shortage.
func (e *Executor) RestAfterShortage(d time.Duration) { e.shortageRest = d }

// HoldReads takes all the room for reading files, as a file system that hangs would, until
// release is called.
func (e *Executor) HoldReads() (release func()) {
	for range readsMax {
		e.pool.Load().files.busy <- struct{}{}
	}
	return func() {
		for range readsMax {
			<-e.pool.Load().files.busy
		}
	}
}
