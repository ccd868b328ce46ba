// Package sim runs a cluster for hours of virtual time in seconds, in bad weather, and checks the
// events against the invariants of the design.
//
// There are two kinds of cluster. A [Core] is single-threaded and repeatable by its seed: the engine,
// placement, the store in memory and the decisions of the workers (internal/decide/runqueue) are real,
// and its nodes are models that plan, report, renew, reap and settle like real ones, by messages that
// are delayed and lost. Whole nodes, in the tests, are real down to their goroutines, in a bubble of
// fake time.
//
// Both go through a [Tap], which sees each step of the store, and leave a [History], which Check reads. The
// checker's knowledge comes from the answers to nodes and users, and from the attempts' own evidence;
// it shares no code with the checked packages.
package sim
