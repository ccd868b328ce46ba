package httpexec

// Transports returns how many transports are kept.
func (e *Executor) Transports() int { return len(e.pool.byTLS) }

// UnmatchedJSON is unmatchedJSON.
var UnmatchedJSON = unmatchedJSON
