package sqlite

import (
	"context"
	"encoding/json"

	"github.com/belfry-cron/belfry/store"
)

// selectAudit goes through the changes from the latest on.
const selectAudit = "select seq, time, actor, action, object, version, detail, changes from audit where seq < ? order by seq desc"

// Audit implements store.Jobs.
func (s *Store) Audit(ctx context.Context, query store.AuditQuery) (list []store.AuditRecord, next int64, err error) {
	before := query.Before
	if before <= 0 {
		before = 1 << 62
	}
	err = s.read(ctx, func(c *conn) error {
		q := c.stmt(selectAudit).bindInt(before)
		var last int64
		for looked := 0; q.next(); looked++ {
			if len(list) == query.Limit || looked == store.LookMax {
				next = last
				q.rewind()
				return nil
			}
			r := store.AuditRecord{
				Seq: q.int(), Time: q.time(), Actor: q.text(), Action: q.text(), Object: q.text(), Version: q.int(), Detail: q.text(),
			}
			last = r.Seq
			if !query.Matches(&r) {
				continue
			}
			if changes := q.view(); len(changes) > 0 {
				if err := json.Unmarshal(changes, &r.Changes); err != nil {
					q.rewind()
					return err
				}
			}
			list = append(list, r)
		}
		return q.err()
	})
	return list, next, wrapped(err, "audit")
}
