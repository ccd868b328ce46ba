package storecopy_test

import (
	"context"
	"errors"

	"github.com/belfry-cron/belfry/internal/cli/storecopy"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/store"
)

var errKilled = errors.New("killed")

// killed is a store that fails from some write on.
type killed struct {
	storecopy.Store
	after int
}

func (k *killed) write() error {
	if k.after--; k.after <= 0 {
		return errKilled
	}
	return nil
}

func (k *killed) Operate(ctx context.Context, op engine.Operation) error {
	if _, reads := op.(*engine.Survey); !reads {
		if err := k.write(); err != nil {
			return err
		}
	}
	return k.Store.Operate(ctx, op)
}

func (k *killed) Append(ctx context.Context, records []store.Record) error {
	if err := k.write(); err != nil {
		return err
	}
	return k.Store.Append(ctx, records)
}

func (k *killed) AppendOutput(ctx context.Context, chunks []store.OutputChunk) error {
	if err := k.write(); err != nil {
		return err
	}
	return k.Store.AppendOutput(ctx, chunks)
}
