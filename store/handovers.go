package store

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Handovers keeps attempts whose work happens outside of Belfry, at a receiver, such as an
// executor or a service, that will report its end. Such an attempt is running and belongs
// to no session, so that it cannot be lost with a node. It ends by its result, a cancel,
// its timeout, or the silence of the receiver: [Working.Finish] ends it for any node with its
// token, and the first result wins.
type Handovers interface {
	// Numbers reserves n numbers, none of them below from, and returns the first. Numbers
	// are for protocols that identify an attempt by a number. They grow, and begin with
	// 1.
	Numbers(ctx context.Context, n int, from int64) (first int64, err error)
	// HandOver records the receivers of the work of attempts, before anything is sent. An
	// attempt must be running under its token, for this session or, to try the next
	// address, already handed over: its earlier handover ends. From then on it belongs to
	// no session. A repeated call gives the same answers.
	HandOver(ctx context.Context, session job.ID, list []Handover) ([]HandedOver, error)
	// Handovers returns handovers. They are known for [HandoverLife] after their end.
	Handovers(ctx context.Context, q HandoverQuery) ([]Handover, error)
	// ToAsk returns handovers of a kind whose Ask is due, and postpones it by [AskAgain] in
	// the same step: no other call returns them until then, unless the run is cancelled.
	// After a lost answer they are due again then. It ends handovers whose attempt is over.
	ToAsk(ctx context.Context, kind string, limit int) ([]Outstanding, error)
	// Asked records the answers of receivers.
	Asked(ctx context.Context, list []Answer) error
}

const (
	// HandoverLife is how long a handover is known after its end: late results name it by
	// its number.
	HandoverLife = 7 * 24 * time.Hour
	// AskAgain is the time for which ToAsk gives a handover to one caller.
	AskAgain = 15 * time.Second
	// HandoverAboutMax is how many bytes of About are kept: an address and some settings.
	HandoverAboutMax = 16 << 10
)

// Handover is an attempt with a receiver outside of Belfry.
type Handover struct {
	// Number identifies it, from Numbers.
	Number int64
	// Attempt identifies the attempt for Finish and Release.
	Attempt Attempt
	// Kind is the protocol, such as "xxl". To describes the receiver, and About holds the
	// protocol's data for finding the work again, opaque to others; a reason waits in JSON is why
	// the receiver has not begun.
	Kind, To, About string
	// Timeout is how long after Sent the work may take; 0 is no limit.
	Timeout time.Duration
	// Sent is when it was handed over, Seen the last sign of life of the receiver, zero for
	// none, and Ask when to ask next, zero once it has ended. HandOver sets them.
	Sent, Seen, Ask time.Time
	// Ended is when its end was noticed, zero before. The attempt may have ended some
	// seconds earlier.
	Ended time.Time
}

// HandoverQuery selects handovers: handovers with one of at most [MaxBatch] Numbers or of a [Run], by
// number, or the open ones of a Kind whose Ask is at AskBy or before, by Ask.
type HandoverQuery struct {
	Numbers []int64
	Run     job.ID
	Kind    string
	AskBy   time.Time
	Limit   int
}

// IsOver reports whether the handover has ended.
func (h *Handover) IsOver() bool { return !h.Ended.IsZero() }

// Deadline returns when the timeout of the work has passed, zero if it has none.
func (h *Handover) Deadline() time.Time {
	if h.Timeout == 0 {
		return time.Time{}
	}
	return h.Sent.Add(h.Timeout)
}

// HandedOver is the result of a [Handover].
type HandedOver uint8

// The results of a [Handover]. All but [Handed] change nothing, and nothing must be sent.
const (
	Handed      HandedOver = iota
	HandGone               // the attempt is not running under its token
	HandEnding             // the run was cancelled and must end
	HandNumbers            // the number is in use: take another
)

// Outstanding is a handover that is due for a poll.
type Outstanding struct {
	Handover
	// Run is the current run. CancelBy is set if it must end, LostAfter is how long the
	// receiver may be silent.
	Run Run
	// Now is the store's clock.
	Now time.Time
}

// Answer is the result of polling a handover.
type Answer struct {
	// Handover is the handover of the [Outstanding]. If the run was cancelled since, shown by its
	// Ask, the next poll is not postponed.
	Handover Handover
	// Seen is set when the receiver has shown a sign of life.
	Seen bool
	// Next is the delay until the next poll.
	Next time.Duration
	// About replaces the text of the handover, "" keeps it: it passes findings to the next
	// caller.
	About string
}
