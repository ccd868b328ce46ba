package httpexec

import "time"

// Transports returns the number of pooled transports.
func (e *Executor) Transports() int { return len(e.pool.Load().byTLS) }

// UnmatchedJSON is unmatchedJSON.
var UnmatchedJSON = unmatchedJSON

// RestAfterShortage sets how long an attempt keeps its capacity in a shortage.
func (e *Executor) RestAfterShortage(d time.Duration) { e.shortageRest = d }

// HoldReads occupies all readers of files, like a hanging file system, until release is called.
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
