package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/history/mongo"
	"github.com/belfry-cron/belfry/internal/server"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// HistoryStore checks the store of a separate history.
func HistoryStore(ctx context.Context, h config.History) Finding {
	if h.Kind() != config.MongoDB {
		return Store(ctx, "history store", config.Store(h))
	}
	f := Finding{Check: "history store", Status: Wrong}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	about, err := mongo.Check(ctx, string(h))
	if err != nil {
		f.Found, f.Do = err.Error(), "check that MongoDB is running and this user may connect: mongosh with the same URL"
		return f
	}
	f.Status, f.Found = Well, about
	return f
}

// behindMax is how long a record may wait for the history store unreported.
const behindMax = time.Minute

// HistoryBehind reports how many records wait in a control store for the history store.
func HistoryBehind(ctx context.Context, s config.Store) Finding {
	f := Finding{Check: "history", Status: Wrong}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	control, err := server.OpenControl(ctx, s)
	if err != nil {
		f.Status, f.Found = Note, "not checked: "+err.Error()
		return f
	}
	defer control.Close()
	consumers, err := control.Consumers(ctx)
	if err != nil {
		f.Found = err.Error()
		return f
	}
	for _, c := range consumers {
		if c.Name != store.ConsumerHistory {
			continue
		}
		f.Status, f.Found = Well, fmt.Sprintf("%d records wait for the history store", c.Entries)
		if age := time.Since(c.Oldest); c.Entries > 0 && age > behindMax {
			f.Status = Wrong
			f.Found += fmt.Sprintf(", the oldest for %s", job.Duration(age.Round(time.Second)).InWords())
			f.Do = "see that a server runs and that the history store can be reached and has room; nothing is lost until the outbox is full, then no runs start"
		}
	}
	return f
}
