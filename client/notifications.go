package client

import (
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Notification is a message of a channel about one group of problems.
type Notification struct {
	ID        string            `json:"id" doc:"Its id, for the acknowledgement."`
	Channel   string            `json:"channel" doc:"The channel, namespace/name."`
	About     string            `json:"about" doc:"What the problems have in common: a job, a run, a node, a namespace or the channel."`
	State     NotificationState `json:"state" enum:"waiting,retrying,refused,sent" doc:"Whether the latest news was delivered: it waits for others, for quiet hours or the limit; a try has failed; the service has refused it; it was delivered."`
	Open      bool              `json:"open" doc:"A problem lasts."`
	Events    []NotifiedEvent   `json:"events" doc:"The problems that last or that are not delivered."`
	More      int               `json:"more,omitempty" doc:"Events of problems that are not listed."`
	Messages  int               `json:"messages,omitempty" doc:"How many messages were delivered."`
	SentAt    time.Time         `json:"sent_at,omitzero" doc:"When the latest was."`
	Tries     int               `json:"tries,omitempty" doc:"How often the next message was tried."`
	Error     string            `json:"error,omitempty" doc:"Why the latest try failed."`
	ErrorCode string            `json:"error_code,omitempty" doc:"The same for programs, as reason_code of runs."`
	ErrorArgs *job.ReasonArgs   `json:"error_args,omitempty" doc:"The arguments of the code by name."`
	AckedBy   string            `json:"acked_by,omitempty" doc:"Who has acknowledged it."`
	AckedAt   time.Time         `json:"acked_at,omitzero" doc:"When."`
}

// NotificationState is the delivery state of a notification's latest message.
type NotificationState string

// The delivery states of a notification.
const (
	NotificationWaiting  NotificationState = "waiting"
	NotificationRetrying NotificationState = "retrying"
	NotificationRefused  NotificationState = "refused"
	NotificationSent     NotificationState = "sent"
)

// NotifiedEvent is one event in a notification.
type NotifiedEvent struct {
	Event job.Notice `json:"event" enum:"failed,failing,recovered,missed,late,waiting,slow,unmet,skipped,late_start,paused,approval,node_lost,disk,history_away,source" doc:"What it is."`
	Job   string     `json:"job,omitempty" doc:"The job, namespace/name."`
	Node  string     `json:"node,omitempty" doc:"The node."`
	Owner string     `json:"owner,omitempty" doc:"The owner of the jobs of a repository."`
	Run   job.ID     `json:"run,omitzero" doc:"The latest run that shows it."`
	Count int        `json:"count" doc:"How many events it is."`
	First time.Time  `json:"first" doc:"When the first was."`
	Last  time.Time  `json:"last" doc:"When the latest was."`
	Over  time.Time  `json:"over,omitzero" doc:"When it was over."`
	Text  string     `json:"text,omitempty" doc:"The reason, in words."`
	Cause string     `json:"cause,omitempty" doc:"The failure in the words of the work, as cause of runs."`
	// TextCode and TextArgs are the reason for programs.
	TextCode string          `json:"text_code,omitempty" doc:"The same for programs, as reason_code of runs."`
	TextArgs *job.ReasonArgs `json:"text_args,omitempty" doc:"The arguments of the code by name."`
}

// Delivery is the state of a channel's deliveries.
type Delivery struct {
	Channel   string          `json:"channel" doc:"The channel, namespace/name."`
	Service   string          `json:"service" doc:"The service: webhook, mail, slack and so on."`
	Paused    bool            `json:"paused,omitempty" doc:"The channel is paused."`
	Waiting   int             `json:"waiting" doc:"Notifications that are not delivered yet."`
	Open      int             `json:"open" doc:"Notifications with a problem that lasts."`
	Sent      int64           `json:"sent" doc:"Messages that were delivered."`
	Failed    int64           `json:"failed" doc:"Tries that failed."`
	GivenUp   int64           `json:"given_up" doc:"Messages that the service refused for a day, and that are not tried again."`
	Dropped   int64           `json:"dropped" doc:"Events for which there was no room."`
	SentAt    time.Time       `json:"sent_at,omitzero" doc:"When the latest message was delivered."`
	Error     string          `json:"error,omitempty" doc:"Why the latest try failed, empty if it did not."`
	ErrorCode string          `json:"error_code,omitempty" doc:"The same for programs, as reason_code of runs."`
	ErrorArgs *job.ReasonArgs `json:"error_args,omitempty" doc:"The arguments of the code by name."`
	FailedAt  time.Time       `json:"failed_at,omitzero" doc:"When the latest try failed."`
	Next      time.Time       `json:"next,omitzero" doc:"Before this nothing is tried, after failures."`
}

// ChannelTest is the result of a test of a channel.
type ChannelTest struct {
	Delivered bool            `json:"delivered" doc:"The service has taken the message."`
	Error     string          `json:"error,omitempty" doc:"Why it has not."`
	ErrorCode string          `json:"error_code,omitempty" doc:"The same for programs, as reason_code of runs."`
	ErrorArgs *job.ReasonArgs `json:"error_args,omitempty" doc:"The arguments of the code by name."`
	Seconds   float64         `json:"seconds" doc:"How long that took."`
}
