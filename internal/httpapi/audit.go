package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/store"
)

// auditStore is what the route about changes wants.
type auditStore interface {
	Audit(ctx context.Context, q store.AuditQuery) ([]store.AuditRecord, int64, error)
}

func (a *api) auditRoutes() {
	register(a, http.MethodGet, "/audit", "list-audit", "List changes, the latest first", a.listAudit)
}

type listAuditInput struct {
	PageInput
	Namespace string    `query:"namespace" maxLength:"128" doc:"Only changes of what is in this namespace."`
	Object    string    `query:"object" maxLength:"257" doc:"Only changes of this: namespace/name, or the name of a token."`
	Actor     string    `query:"actor" maxLength:"128" doc:"Only changes by the holder of this token, or by belfry itself."`
	From      time.Time `query:"from" doc:"Only changes at this instant or later."`
	To        time.Time `query:"to" doc:"Only changes before this instant."`
}

type listAuditOutput struct {
	Body client.Page[client.AuditRecord]
}

// auditPlace is where a page of changes ended.
type auditPlace struct {
	Before int64 `json:"before"`
}

// listAudit shows changes. Like a page of runs, one of changes looks at a bounded
// part of them.
func (a *api) listAudit(ctx context.Context, in *listAuditInput) (*listAuditOutput, error) {
	var place auditPlace
	if err := readToken(in.PageToken, &place); err != nil {
		return nil, err
	}
	if !in.From.IsZero() && !in.To.IsZero() && !in.From.Before(in.To) {
		return nil, wrongParameter("from", "is not before the end, "+in.To.Format(time.RFC3339), "")
	}
	out := &listAuditOutput{Body: client.Page[client.AuditRecord]{Items: []client.AuditRecord{}}}
	q := store.AuditQuery{Namespace: in.Namespace, Object: in.Object, Actor: in.Actor, From: in.From, To: in.To, Before: place.Before}
	began := a.Now()
	for range partsMax {
		q.Limit = in.PageSize - len(out.Body.Items)
		records, next, err := a.Store.Audit(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range records {
			out.Body.Items = append(out.Body.Items, auditRecord(&records[i]))
		}
		if q.Before = next; next == 0 {
			return out, nil
		}
		if len(out.Body.Items) == in.PageSize || a.Now().Sub(began) >= lookTime {
			break
		}
	}
	out.Body.NextPageToken = writeToken(auditPlace{q.Before})
	return out, nil
}

func auditRecord(r *store.AuditRecord) client.AuditRecord {
	shown := client.AuditRecord{
		Seq: r.Seq, Time: r.Time, Actor: r.Actor, Action: r.Action, Object: r.Object, Version: r.Version, Detail: r.Detail,
	}
	for _, c := range r.Changes {
		shown.Changes = append(shown.Changes, client.FieldChange(c))
	}
	return shown
}
