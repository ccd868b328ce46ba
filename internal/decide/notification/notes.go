package notification

import (
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Consumer returns the consumer of the feed. It excludes successes: they are most of the
// ends, and the history shows whether a job has recovered.
func Consumer() store.Consumer {
	return store.Consumer{Name: "notifications", FinalOnly: true, Outcomes: []job.Outcome{
		job.OutcomeFailed, job.OutcomeTimedOut, job.OutcomeLost, job.OutcomeMissed,
	}}
}

// The names of the notes in the store that notifications are kept in.
const (
	LeaseNote    = "notify/lease"    // who delivers
	GroupNotes   = "notify/group/"   // and the uid of the channel, a slash, and the id of the group
	ChannelNotes = "notify/channel/" // and the uid of the channel
	UnmetNotes   = "notify/unmet/"   // and the run: expectations that were not met
)
