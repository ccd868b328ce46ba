package cli

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

// historyStore checks the store of a separate history.
func historyStore(ctx context.Context, h config.History) finding {
	if h.Kind() != config.MongoDB {
		return storeIntegrity(ctx, "history store", config.Store(h))
	}
	f := finding{Check: "history store", Status: isWrong}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	about, err := mongo.Check(ctx, string(h))
	if err != nil {
		f.Found, f.Do = err.Error(), "check that MongoDB is running and this user may connect: mongosh with the same URL"
		return f
	}
	f.Status, f.Found = isWell, about
	return f
}

// behindMax is how long a record may wait for the history store unreported.
const behindMax = time.Minute

// historyBehind reports how many records wait in a control store for the history store.
func historyBehind(ctx context.Context, s config.Store) finding {
	f := finding{Check: "history", Status: isWrong}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	control, err := server.OpenControl(ctx, s)
	if err != nil {
		f.Status, f.Found = isNote, "not checked: "+err.Error()
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
		f.Status, f.Found = isWell, fmt.Sprintf("%d records wait for the history store", c.Entries)
		if age := time.Since(c.Oldest); c.Entries > 0 && age > behindMax {
			f.Status = isWrong
			f.Found += fmt.Sprintf(", the oldest for %s", job.Duration(age.Round(time.Second)).InWords())
			f.Do = "see that a server runs and that the history store can be reached and has room; nothing is lost until the outbox is full, then no runs start"
		}
	}
	return f
}
