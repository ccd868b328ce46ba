package service

import (
	"context"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/store"
)

// auditStore is the part of a store that the audit uses.
type auditStore interface {
	Audit(ctx context.Context, q store.AuditQuery) ([]store.AuditRecord, int64, error)
}

// Audit shows changes and their actors.
type Audit struct {
	*base
	store auditStore
}

// auditPlace is where a page of changes ended.
type auditPlace struct {
	Before int64 `json:"before"`
}

// List returns a page of changes, the latest first. A page searches a bounded part of them.
func (s *Audit) List(ctx context.Context, who Caller, query client.AuditQuery) (client.Page[client.AuditRecord], error) {
	page := client.Page[client.AuditRecord]{Items: []client.AuditRecord{}}
	of, err := who.reads(query.Namespace)
	if err != nil {
		return page, err
	}
	var place auditPlace
	if err := readToken(query.PageToken, &place); err != nil {
		return page, err
	}
	if !query.From.IsZero() && !query.To.IsZero() && !query.From.Before(query.To) {
		return page, WrongParameter("from", phrase.NotBeforeEnd.Of(phrase.MomentOf(query.To)))
	}
	q := store.AuditQuery{Object: query.Object, Actor: query.Actor, Action: query.Action, Group: query.Group, From: query.From, To: query.To, Before: place.Before}
	size, began := pageSize(query.PageSize), s.now()
	for range partsMax {
		q.Limit = size - len(page.Items)
		records, next, err := of.audit(ctx, s.store, q)
		if err != nil {
			return page, err
		}
		for i := range records {
			page.Items = append(page.Items, auditRecord(&records[i]))
		}
		if q.Before = next; next == 0 {
			return page, nil
		}
		if len(page.Items) == size || s.now().Sub(began) >= lookTime {
			break
		}
	}
	page.NextPageToken = writeToken(auditPlace{q.Before})
	return page, nil
}

func auditRecord(r *store.AuditRecord) client.AuditRecord {
	shown := client.AuditRecord{
		Seq: r.Seq, Time: r.Time, Actor: r.Actor, Action: r.Action, Object: r.Object, Version: r.Version, Detail: r.Detail.String(),
		Client: r.Origin.Client, Address: r.Origin.Address, Group: r.Origin.Group,
	}
	shown.DetailCode, shown.DetailArgs = r.Detail.For()
	for _, c := range r.Changes {
		shown.Changes = append(shown.Changes, client.FieldChange(c))
	}
	return shown
}
