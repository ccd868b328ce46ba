// Package engine makes the decisions: what to plan for a job, whether a run may start, and the
// consequences of its end. It reads no clock, uses no store and starts no goroutine; its inputs are
// the state and the time, its outputs are changes.
//
// It has two halves. Planners call [Timing.Decide] for due occurrences. Stores use a [Batch] for
// everything that must happen once: they add the inputs of a decision, call it, and write [Changes]
// in one atomic step. So the rules are written once for all stores. A store only has to write the
// changes atomically, under a lock or a compare-and-set on its reads.
//
// # The states of a run
//
//	Plan, Trigger, Finish (a follower, the next of a chain)
//	    make a run that is ready
//	Claim
//	    starts it, makes it wait for its slot or for the occurrence before it,
//	    or ends it: withdrawn, missed, skipped
//	Release
//	    gives it back
//	Finish, Reap
//	    make it ready for its next attempt, or end it
//	Cancel, Settle
//	    end what does not run
//
// Each end goes through one function, which writes the record, hands the slot on, and creates the
// following runs.
package engine
