package notification

import (
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Consumer returns the consumer of the feed. Without a rule about late starts it excludes successes: they are
// most of the ends, and the history shows whether a job has recovered.
func Consumer(channels ...*job.Channel) store.Consumer {
	c := store.Consumer{Name: "notifications", FinalOnly: true, OrUnmet: Names(channels, job.NoticeUnmet), Outcomes: []job.Outcome{
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

// Awaited is a run whose end is reported to a webhook of its own.
type Awaited struct {
	Run       job.ID             `json:"run"`
	Namespace string             `json:"namespace"`
	To        job.WebhookService `json:"to"`
	// Ended is set when the message is in a group, which remembers its delivery.
	Ended bool `json:"ended,omitempty"`
	// Unseen is since when the run is neither active nor in history.
	Unseen time.Time `json:"unseen,omitzero"`
}

// AwaitedMax is the most runs with a webhook of their own whose end is not delivered yet: the
// delivering node looks at all of them every 2 s.
const AwaitedMax = store.MaxBatch

// Channel returns the channel that delivers the end of the run: at once, and nothing else.
func (a *Awaited) Channel() *job.Channel {
	c := (&job.Channel{Namespace: a.Namespace, Name: "run-" + a.Run.String(), UID: a.Run, To: job.Service{Webhook: &a.To}, Version: 1}).WithDefaults()
	c.Group.Wait, c.Group.By = 0, job.GroupByChannel
	return c
}

// The names of the notes for notifications.
const (
	LeaseNote    = "notify/lease"    // who delivers
	GroupNotes   = "notify/group/"   // followed by the uid of the channel, a slash, and the id of the group
	ChannelNotes = "notify/channel/" // followed by the uid of the channel
	RunNotes     = "notify/run/"     // followed by a run, whose end has a webhook of its own
	UnmetNotes   = "notify/unmet/"   // followed by the run, for unmet expectations
)
