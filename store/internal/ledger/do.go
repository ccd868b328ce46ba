package ledger

import (
	"context"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// Do executes an operation as one step on the backend.
func (s *Control) Do(ctx context.Context, o Order, op engine.Operation) error {
	return s.do(ctx, o, op)
}

// Operate makes a step of an operation on the whole store: a copy or a check.
func (s *Control) Operate(ctx context.Context, op engine.Operation) error {
	return s.do(ctx, Order{Items: 1, Adds: true}, op)
}

// Document returns the document of a definition in this store, with its defaults filled
// in.
func (s *Control) Document(definition *job.Job) (*engine.Document, error) {
	text, document, err := columns.EncodeJob(definition)
	if err != nil {
		return nil, err
	}
	d := engine.NewDocument(document, document.WithDefaults(s.opt.Defaults))
	d.Text = text
	return d, nil
}
