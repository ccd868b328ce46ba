package store

import (
	"context"

	"github.com/belfry-cron/belfry/job"
)

// Outbox is the additional contract of a store without history: its feed has the consumer
// [ConsumerHistory], whose entries are the only copy of these records until they are shipped.
type Outbox interface {
	// FinishLate is Finish for attempts whose records have left the feed: was has these records
	// from history. A changed record is fed again.
	FinishLate(ctx context.Context, session job.ID, results []Result, was []Record) ([]FinishOutcome, error)
	// UseHistory records at its first call which history belongs to the store. Later calls
	// with another history return [ErrConflict].
	UseHistory(ctx context.Context, id HistoryID) error
	// Waiting returns the records that are not shipped yet, the latest first: of one run, or of all
	// runs if it is zero. If an attempt has two records it returns the later one.
	Waiting(ctx context.Context, run job.ID, limit int) ([]Record, error)
}

// HistoryID identifies a history. It is created at the first use of the history.
type HistoryID int64
