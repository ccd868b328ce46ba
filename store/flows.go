package store

import "github.com/belfry-cron/belfry/job"

// FlowAnswer is what steps of a flow wait for.
type FlowAnswer struct {
	// Run is the run of the flow.
	Run job.ID
	// Step waits for an approval, which Reject refuses. Signal is given instead for a signal,
	// which ends all steps that wait for it, with Data as their result.
	Step   string
	Reject bool
	Signal string
	Data   []byte // JSON, or nil
	// By is who answers, and Note why.
	By, Note string
}
