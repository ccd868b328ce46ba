// Package sim lets a cluster run for hours of virtual time in seconds, in bad
// weather, and holds what has happened against the invariants of the design.
//
// There are two kinds of cluster. A Core is single-threaded and the same again for
// each seed: the engine, placement, the store in memory and the minds of the workers
// (internal/decide/runqueue) are real, and its nodes are models that plan, report, renew, reap and
// settle as real ones do, by messages that are delayed and lost. Whole nodes, in the tests, are real down to
// their goroutines, in a bubble of fake time.
//
// Both go through a Tap, which sees each step that the store has made, and leave a
// History, which Check reads. What the checker knows comes from the answers of the
// store, from what users were told, and from what the attempts themselves have
// seen; it shares no code with what it judges.
package sim
