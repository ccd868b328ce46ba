package sqldb

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/store/internal/ledger"
)

// closing is a database that stops answering when its store is closed.
type closing struct {
	*distant
	close func()
}

func (d *closing) Begin(ctx context.Context, adds bool) (Tx, error) {
	d.close()
	time.Sleep(2 * tellEvery)
	return nil, ctx.Err()
}

func TestNotifyingEndsWithTheStore(t *testing.T) {
	for range 30 { // chance decides which channel is read first
		synctest.Test(t, func(t *testing.T) {
			d, s := dial(always(0, 0))
			ctx, stop := context.WithCancel(t.Context())
			s.db = &closing{d, stop}
			s.ledger = ledger.New(s, ledger.Options{})
			s.followed.wake = make(chan struct{}, 1)
			s.followed.heard()
			s.tell(ctx)
		})
	}
}
