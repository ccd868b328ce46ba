package notice

import (
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Consumer returns the consumer of the feed of what has ended. Successes are not in it: they are
// most of what ends, and whether a job has recovered is seen in its history.
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
