package sqldb

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// historySetting is a row of the table settings that has the id of the history. Append locks
// it, so that two processes which append the same records do so one after another.
const historySetting = "history"

var settingRows = &Table{Name: "settings", Key: 1, Columns: []Column{{"name", Text}, {"value", Text}}}

// HistoryID implements [store.History].
func (s *backend) HistoryID(ctx context.Context) (id store.HistoryID, err error) {
	for range 2 {
		err = s.read(ctx, func(t *tx) error {
			found, err := t.texts("select value from settings where name = ?", historySetting)
			if err != nil || len(found) == 0 {
				return err
			}
			n, err := strconv.ParseInt(found[0], 10, 64)
			id = store.HistoryID(n)
			return err
		})
		if err != nil || id != 0 {
			return id, wrapped(err, "id of the history")
		}
		err = s.write(ctx, func(t *tx) error {
			return t.writeRows(InsertNew, t.rows(settingRows, 1).text(historySetting).text(strconv.FormatInt(1+rand.Int64N(1<<62), 10)))
		})
		if err != nil {
			return 0, fmt.Errorf("id of the history: %w", err)
		}
	}
	return 0, fmt.Errorf("id of the history: %w: it was written and does not exist", store.ErrDamaged)
}

// Append implements [store.History].
func (s *backend) Append(ctx context.Context, records []store.Record) error {
	if _, err := s.HistoryID(ctx); err != nil { // creates the row to lock
		return err
	}
	err := s.grow(ctx, func(t *tx) error { return t.appendRecords(records) })
	return wrapped(err, "append records")
}

func (t *tx) appendRecords(records []store.Record) error {
	if len(records) == 0 {
		return nil
	}
	if _, err := t.texts("select value from settings where name = ? for update", historySetting); err != nil {
		return err
	}
	type attempt struct {
		run    job.ID
		number int
	}
	there := map[attempt]bool{} // stored attempts, and whether each is lost
	runs := make([]job.ID, len(records))
	for i := range records {
		runs[i] = records[i].Run.ID
	}
	q := t.query("select run, attempt, outcome from history where run in (?*)", set(runs))
	for q.Next() {
		there[attempt{q.id(), int(q.Int())}] = q.Int() == columns.Outcomes.Of(job.OutcomeLost)
	}
	if err := q.Err(); err != nil {
		return err
	}
	var list []*store.Record
	given := map[attempt]int{} // places in the list
	names, named := t.rows(jobNames, len(records)), map[job.ID]bool{}
	for i := range records {
		r := &records[i]
		key := attempt{r.Run.ID, r.Attempt.Number}
		lost, known := there[key]
		switch at, again := given[key]; {
		case again && list[at].Attempt.Outcome == job.OutcomeLost:
			list[at] = r
			continue
		case again, known && !lost:
			continue
		case known:
			if err := t.uncount(r.Run.ID, r.Attempt.Number); err != nil {
				return err
			}
			if err := t.exec("delete from history where run = ? and attempt = ?", idOf(r.Run.ID), int64(r.Attempt.Number)); err != nil {
				return err
			}
		}
		given[key] = len(list)
		list = append(list, r)
		if !named[r.Run.JobUID] {
			named[r.Run.JobUID] = true
			names.id(&r.Run.JobUID).text(r.Run.Namespace).text(r.Run.Name)
		}
	}
	if err := t.writeRows(InsertNew, names); err != nil {
		return err
	}
	return t.insertRecords(list)
}
