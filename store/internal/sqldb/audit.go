package sqldb

import (
	"context"
	"encoding/json"

	"github.com/belfry-cron/belfry/store"
)

var auditRows = &Table{Name: "audit", Key: 1, Columns: []Column{
	{"seq", Int}, {"written", Int}, {"actor", Text}, {"action", Text}, {"object", Text}, {"version", Int}, {"detail", Text}, {"changes", Text},
	{"client", Text}, {"address", Text}, {"request", Text},
}}

// insertAudit writes what was changed, numbered from first.
func (t *tx) insertAudit(list []store.AuditRecord, first int64) error {
	b := t.rows(auditRows, len(list))
	for i := range list {
		a := &list[i]
		changes := ""
		if len(a.Changes) > 0 {
			text, err := json.Marshal(a.Changes)
			if err != nil {
				return err
			}
			changes = string(text)
		}
		b.int(first + int64(i)).time(a.Time).text(a.Actor).text(a.Action).text(a.Object).int(a.Version).text(a.Detail.Stored()).text(changes)
		b.text(a.Origin.Client).text(a.Origin.Address).text(a.Origin.Group)
	}
	return t.writeRows(Insert, b)
}

// Audit implements [store.Jobs].
func (s *backend) Audit(ctx context.Context, query store.AuditQuery) (list []store.AuditRecord, next int64, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, next, err = t.audit(&query)
		return err
	})
	return list, next, wrapped(err, "audit")
}

func (t *tx) audit(query *store.AuditQuery) (list []store.AuditRecord, next int64, err error) {
	before := query.Before
	if before <= 0 {
		before = 1 << 62
	}
	looked := 0
	for chunk := query.Limit + 1; ; chunk *= 4 {
		limit := min(chunk, listChunk, store.LookMax+1-looked)
		read := 0
		q := t.query("select seq, written, actor, action, object, version, detail, client, address, request, changes from audit where seq < ? order by seq desc limit ?", before, int64(limit))
		for ; q.Next(); read++ {
			r := store.AuditRecord{
				Seq: q.Int(), Time: q.time(), Actor: q.Text(), Action: q.Text(), Object: q.Text(), Version: q.Int(), Detail: q.reason(),
				Origin: store.Origin{Client: q.Text(), Address: q.Text(), Group: q.Text()},
			}
			if len(list) == query.Limit || looked == store.LookMax {
				q.Close()
				return list, before, q.Err()
			}
			looked, before = looked+1, r.Seq
			if !query.Matches(&r) {
				continue
			}
			if changes := q.View(); len(changes) > 0 {
				if err := json.Unmarshal(changes, &r.Changes); err != nil {
					q.Close()
					return nil, 0, err
				}
			}
			list = append(list, r)
		}
		if err := q.Err(); err != nil || read < limit {
			return list, 0, err
		}
	}
}
