package notification

import (
	"slices"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Consumer returns the consumer of the feed. Without a rule about late starts it excludes successes: they are
// most of the ends, and the history shows whether a job has recovered.
func Consumer(channels ...*job.Channel) store.Consumer {
	c := store.Consumer{Name: "notifications", FinalOnly: true, Outcomes: []job.Outcome{
		job.OutcomeFailed, job.OutcomeTimedOut, job.OutcomeLost, job.OutcomeMissed,
	}}
	if Names(channels, job.NoticeSkipped) {
		c.Outcomes = append(c.Outcomes, job.OutcomeSkipped)
	}
	if Names(channels, job.NoticeLateStart) {
		c.Outcomes = append(c.Outcomes, job.OutcomeSucceeded, job.OutcomeCancelled)
	}
	return c
}

// Names reports whether a rule of the channels names an event.
func Names(channels []*job.Channel, event job.Notice) bool {
	return slices.ContainsFunc(channels, func(c *job.Channel) bool {
		return slices.ContainsFunc(c.Rules, func(r job.ChannelRule) bool { return slices.Contains(r.Events, event) })
	})
}

// The names of the notes in the store that notifications are kept in.
const (
	LeaseNote    = "notify/lease"    // who delivers
	GroupNotes   = "notify/group/"   // and the uid of the channel, a slash, and the id of the group
	ChannelNotes = "notify/channel/" // and the uid of the channel
	UnmetNotes   = "notify/unmet/"   // and the run: expectations that were not met
)
