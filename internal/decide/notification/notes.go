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

// The names of the notes for notifications.
const (
	LeaseNote    = "notify/lease"    // who delivers
	GroupNotes   = "notify/group/"   // followed by the uid of the channel, a slash, and the id of the group
	ChannelNotes = "notify/channel/" // followed by the uid of the channel
	UnmetNotes   = "notify/unmet/"   // followed by the run, for unmet expectations
)
