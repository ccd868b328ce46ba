package store

import (
	"context"

	"github.com/belfry-cron/belfry/job"
)

// Outbox is what a store without history has besides: its feed has the consumer
// ConsumerHistory, whose entries are the only place that has these records until they were
// shipped.
type Outbox interface {
	// FinishLate is Finish for attempts whose records were taken out of the feed since: was
	// are those records, as history has them. What is changed in one is fed again.
	FinishLate(ctx context.Context, session job.ID, results []Result, was []Record) ([]FinishOutcome, error)
	// UseHistory notes which history belongs to the store, when it is called for the first
	// time. After that it is an ErrConflict to call it with another one.
	UseHistory(ctx context.Context, id HistoryID) error
}

// HistoryID tells histories apart. It is made when a history is used for the first time.
type HistoryID int64
