package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// What planners read of a job has the defaults filled in, so that it is written
// again when a server starts with others. It is the only part of Open that looks
// at every job.

// defaultsName is the setting that holds the defaults of the latest start.
const defaultsName = "defaults"

func (s *Store) applyDefaults(ctx context.Context) error {
	text, err := json.Marshal(s.defaults)
	if err != nil {
		return err
	}
	old := ""
	err = s.read(ctx, func(c *conn) error {
		q := c.stmt("select value from settings where name = ?").bindText(defaultsName)
		for q.next() {
			old = q.text()
		}
		return q.err()
	})
	if err != nil || old == string(text) {
		return err
	}
	var before job.Defaults
	if old != "" {
		if err := json.Unmarshal([]byte(old), &before); err != nil {
			return fmt.Errorf("defaults of the latest start: %w", err)
		}
	}
	for last, more := (job.ID{}), true; more; {
		err := s.write(ctx, func(t *tx) (err error) {
			last, more, err = t.refill(before, last)
			return err
		})
		if err != nil {
			return fmt.Errorf("fill in other defaults: %w", err)
		}
	}
	err = s.write(ctx, func(t *tx) error {
		q := t.stmt("insert or replace into settings (name, value) values (?, ?)")
		return q.bindText(defaultsName).bindText(string(text)).exec()
	})
	if errors.Is(err, store.ErrNoSpace) {
		return nil // the next start does it again
	}
	return err
}

// refill writes again what depends on the defaults for some jobs behind one. A
// job whose schedule means something else by them begins a new epoch.
func (t *tx) refill(before job.Defaults, last job.ID) (job.ID, bool, error) {
	list, err := ids(t.stmt("select uid from jobs where uid > ? and live is not null order by uid limit ?").bindID(last).bindInt(store.MaxBatch))
	if err != nil || len(list) == 0 {
		return last, false, err
	}
	st, err := t.step(1)
	if err != nil {
		return last, false, err
	}
	for _, uid := range list {
		l, err := st.job(uid)
		if err != nil {
			return last, false, err
		}
		if err := st.time(l.jobRow); err != nil {
			return last, false, err
		}
		was := l.doc.definition.WithDefaults(before)
		if policy := engine.CompilePolicy(was); !reflect.DeepEqual(policy, l.Policy) {
			if err := st.waitingRuns(l, policy); err != nil {
				return last, false, err
			}
			st.b.Refit(l.Job)
		}
		if !reflect.DeepEqual(was.Schedule, l.doc.filled.Schedule) {
			st.b.Reschedule(l.Job)
		} else if err := st.announce(l.jobRow); err != nil {
			return last, false, err
		}
	}
	return list[len(list)-1], true, st.write()
}
