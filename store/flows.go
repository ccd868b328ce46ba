package store

import "github.com/belfry-cron/belfry/job"

// FlowAnswer is an answer to waiting steps of a flow.
type FlowAnswer struct {
	// Run is the run of the flow.
	Run job.ID
	// Step is a step that waits for an approval; Reject refuses it. Otherwise Signal is set:
	// it ends all steps that wait for that signal, with Data as their result.
	Step   string
	Reject bool
	Signal string
	Data   []byte // JSON, or nil
	// By is the person who answers, and [Note] the reason.
	By, Note string
}
