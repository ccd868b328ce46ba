package store

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Feed is a durable feed of finished attempts, for consumers that act on each:
// notifications, webhooks, a separate history.
//
// The step that ends an attempt adds its record to the entries of each consumer, in the
// same commit. An entry stays until its consumer acknowledges it. So a consumer receives
// each record at least once, even after a crash of any process. It must tolerate a second
// delivery, by run and attempt: two processes may read the same entry, and a process that
// has acted on an entry may die before it acknowledges it.
//
// A consumer works like this:
//
//	err := s.PutConsumer(ctx, store.Consumer{Name: "webhooks", FinalOnly: true}) // once
//	entries, err := s.Ended(ctx, "webhooks", "", 100)
//	// … act on each entry …
//	err = s.Taken(ctx, "webhooks", refs)
//
// The unacknowledged entries of a consumer are its cursor. A sequence number does not
// suffice, because steps of several processes become visible in any order: it would skip a
// step that commits late.
//
// Consumers are independent of each other: a slow one delays none and costs only its own
// entries. Most of one run's records come in the order of its attempts, but nothing
// guarantees the order. A late result that replaces "lost" is an entry of its own, with
// Record.Replaces. Records added by [History.Append] are not fed: they ended elsewhere.
type Feed interface {
	// PutConsumer adds or changes a consumer. It receives attempts that end later than
	// [FeedDelay] after the call, and may receive earlier ones. Changing a consumer keeps its
	// entries. [ErrLimit] is for more than [ConsumersMax].
	PutConsumer(ctx context.Context, c Consumer) error
	// DeleteConsumer removes a consumer with its entries, and does nothing if it does not
	// exist.
	DeleteConsumer(ctx context.Context, name string) error
	// Consumers returns the consumers by name, with the lag of each.
	Consumers(ctx context.Context) ([]ConsumerState, error)
	// Ended returns entries of a consumer in the order of their places, after a place; ""
	// begins with the oldest. A new entry may have a place before one that was returned: at
	// the end, a reader begins again at "". An unknown consumer is an [ErrNotFound].
	Ended(ctx context.Context, consumer string, after FeedRef, limit int) ([]FeedEntry, error)
	// Taken removes at most [MaxBatch] entries of a consumer. It ignores entries that do
	// not exist.
	Taken(ctx context.Context, consumer string, refs []FeedRef) error
}

const (
	// FeedMax is the most entries kept for a consumer. Tidy drops the oldest beyond it within a
	// minute, and counts them in ConsumerState.Dropped: a dead consumer must not fill the store.
	// The entries of [ConsumerHistory] are not dropped: claims stop instead.
	FeedMax = 100_000
	// FeedDelay is the time until all processes know a consumer: they cache the consumers
	// for a second, and a commit takes at most ten.
	FeedDelay = 15 * time.Second
	// ConsumersMax is the most consumers apart from [ConsumerHistory]. Each adds a write to the end
	// of a run.
	ConsumersMax = 8
	// ConsumerHistory is the consumer of a store without history, which ships its records.
	// See [Outbox].
	ConsumerHistory = "history"
)

// Consumer is a reader of the feed.
type Consumer struct {
	// Name has lower-case letters, digits and hyphens, and begins with a letter.
	Name string
	// FinalOnly leaves out attempts that are followed by another one.
	FinalOnly bool
	// Outcomes are the wanted outcomes. Default: all.
	Outcomes []job.Outcome
	// OrUnmet also wants records of other outcomes that missed an expectation.
	OrUnmet bool
	// Max is the most entries kept for it. Default and maximum: [FeedMax].
	Max int
}

// Most returns the most entries kept for the consumer.
func (c *Consumer) Most() int {
	if c.Max == 0 {
		return FeedMax
	}
	return min(c.Max, FeedMax)
}

var consumerName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// Check returns the mistakes in a consumer.
func (c *Consumer) Check() error {
	if !consumerName.MatchString(c.Name) {
		return fmt.Errorf("consumer %q: a name has at most 40 lower-case letters, digits and hyphens, and begins with a letter", c.Name)
	}
	if c.Name == ConsumerHistory {
		return fmt.Errorf("consumer %q: the name belongs to the history store: %w", c.Name, ErrConflict)
	}
	if c.Max < 0 {
		return fmt.Errorf("consumer %q: it cannot keep %d entries", c.Name, c.Max)
	}
	return nil
}

// Wants reports whether the consumer receives a record.
func (c *Consumer) Wants(r *Record) bool {
	return (r.Final || !c.FinalOnly) && (len(c.Outcomes) == 0 || slices.Contains(c.Outcomes, r.Attempt.Outcome) || c.OrUnmet && !r.Unmet.IsZero())
}

// ConsumerState is the lag of a consumer.
type ConsumerState struct {
	Consumer
	Entries int
	Bytes   int64     // approximate size in the store
	Oldest  time.Time // when the oldest entry was added; zero without entries
	Dropped int64     // entries dropped beyond the bound
}

// FeedRef is the place of an entry, as the store orders them.
type FeedRef string

// FeedEntry is an unacknowledged record of a consumer.
type FeedEntry struct {
	Ref    FeedRef
	Record Record
}
