package sqldb

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// What planners read of a job has the defaults filled in, so that it is written
// again when a node starts with others. It is the only part of Open that looks
// at every job. One node does it at a time.

// defaultsName is the setting that holds the defaults of the latest start.
const defaultsName = "defaults"

var settings = &Table{Name: "settings", Key: 1, Columns: []Column{{"name", Text}, {"value", Text}}}

func (s *Store) applyDefaults(ctx context.Context) error {
	text, err := json.Marshal(s.defaults)
	if err != nil {
		return err
	}
	for last, more := (job.ID{}), true; more; {
		err := s.write(ctx, func(t *tx) error {
			if err := t.lock(defaultsLock); err != nil {
				return err
			}
			list, err := t.texts("select value from settings where name = ?", defaultsName)
			if err != nil || len(list) > 0 && list[0] == string(text) {
				more = false
				return err
			}
			var before job.Defaults
			if len(list) > 0 {
				if err := json.Unmarshal([]byte(list[0]), &before); err != nil {
					return fmt.Errorf("defaults of the latest start: %w", err)
				}
			}
			if last, more, err = t.refill(before, last); err != nil || more {
				return err
			}
			return t.writeRows(Upsert, settings.rows(1).text(defaultsName).text(string(text)))
		})
		if err != nil {
			return fmt.Errorf("fill in other defaults: %w", err)
		}
	}
	return nil
}

// refill writes again what depends on the defaults for some jobs behind one. A
// job whose schedule means something else by them begins a new epoch.
func (t *tx) refill(before job.Defaults, last job.ID) (job.ID, bool, error) {
	list, err := t.ids("select uid from jobs where uid > ? and live is not null order by uid limit ?", idOf(last), int64(store.MaxBatch))
	if err != nil || len(list) == 0 {
		return last, false, err
	}
	st, err := t.step(about{jobs: list, whole: list})
	if err != nil {
		return last, false, err
	}
	calendars, err := t.calendars()
	if err != nil {
		return last, false, err
	}
	for _, uid := range list {
		l := st.jobs[uid]
		if l == nil || l.Deleted {
			continue
		}
		if err := l.time(calendars); err != nil {
			return last, false, err
		}
		was := l.doc.definition.WithDefaults(before)
		if !reflect.DeepEqual(was.Schedule, l.doc.filled.Schedule) {
			st.b.Reschedule(l.Job)
		} else {
			st.touched = append(st.touched, l)
		}
	}
	return list[len(list)-1], true, st.write()
}
