package sqldb

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/belfry-cron/belfry/internal/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// documentsByName returns the documents of a kind by full name.
func documentsByName[T any](t *tx, kind job.Kind) (map[string]*T, error) {
	all := map[string]*T{}
	q := t.query("select full_name, definition from documents where kind = ?", string(kind))
	for q.Next() {
		name, d := q.Text(), new(T)
		if err := json.Unmarshal(q.View(), d); err != nil {
			q.Close()
			return nil, err
		}
		all[name] = d
	}
	return all, q.Err()
}

// documentsOf returns the documents of a kind in the order of their full names.
func documentsOf[T any](ctx context.Context, s *backend, kind job.Kind) (list []*T, err error) {
	err = s.read(ctx, func(t *tx) error {
		all, err := documentsByName[T](t, kind)
		list = nil
		for _, name := range slices.Sorted(maps.Keys(all)) {
			list = append(list, all[name])
		}
		return err
	})
	return list, wrapped(err, "%s", kind.Plural())
}

// Calendars implements ledger.Backend.
func (s *backend) Calendars(ctx context.Context) ([]*job.Calendar, error) {
	return documentsOf[job.Calendar](ctx, s, job.KindCalendar)
}

// Pools implements ledger.Backend.
func (s *backend) Pools(ctx context.Context) ([]*job.Pool, error) {
	return documentsOf[job.Pool](ctx, s, job.KindPool)
}

// Channels implements ledger.Backend.
func (s *backend) Channels(ctx context.Context) ([]*job.Channel, error) {
	return documentsOf[job.Channel](ctx, s, job.KindChannel)
}

// Executors implements ledger.Backend.
func (s *backend) Executors(ctx context.Context) ([]*job.Executors, error) {
	return documentsOf[job.Executors](ctx, s, job.KindExecutors)
}

var documentRows = &Table{Name: "documents", Key: 2, Columns: []Column{
	{"kind", Text}, {"full_name", Text}, {"uid", Blob}, {"version", Int}, {"definition", Text},
}}

func (b *Batch) document(head engine.Head, d any) error {
	text, err := json.Marshal(d)
	if err == nil {
		b.text(string(head.Kind)).text(head.FullName()).id(head.UID).int(*head.Version).text(string(text))
	}
	return err
}

var tokenRows = &Table{Name: "tokens", Key: 1, Columns: []Column{
	{"name", Text}, {"hash", Blob}, {"role", Text}, {"namespace", Text}, {"created", Int}, {"made_by", Text}, {"expires", Int}, {"last_used", Int}, {"terms", Text},
}}

// writeDocuments writes calendars, pools, channels and tokens.
func (st *step) writeDocuments(c *engine.Changes) error {
	documents, tokens := st.rows(documentRows, 0), st.rows(tokenRows, 0)
	for _, d := range c.Calendars {
		if err := documents.document(engine.CalendarHead(d), d); err != nil {
			return err
		}
	}
	for _, d := range c.Pools {
		if err := documents.document(engine.PoolHead(d), d); err != nil {
			return err
		}
	}
	for _, d := range c.Channels {
		if err := documents.document(engine.ChannelHead(d), d); err != nil {
			return err
		}
	}
	for _, d := range c.Listed {
		if err := documents.document(engine.ExecutorsHead(d), d); err != nil {
			return err
		}
	}
	for i := range c.Tokens {
		t := &c.Tokens[i]
		tokens.text(t.Name).blob(t.Hash[:]).text(string(t.Role)).text(t.Namespace).time(t.Created).text(t.By).time(t.Expires).time(t.LastUsed).text(t.TermsText())
	}
	for _, n := range c.Notes {
		if err := st.writeNote(n); err != nil {
			return err
		}
	}
	if documents.Len() > 0 {
		st.hint = st.hint.With(store.HintJobs)
	}
	for _, d := range c.Dropped {
		var err error
		if d.Kind == "" {
			err = st.exec("delete from tokens where name = ?", d.Name)
		} else {
			st.hint = st.hint.With(store.HintJobs)
			err = st.exec("delete from documents where kind = ? and full_name = ?", string(d.Kind), d.Name)
		}
		if err != nil {
			return err
		}
	}
	if err := st.writeRows(Upsert, documents); err != nil {
		return err
	}
	return st.writeRows(Upsert, tokens)
}

// Tokens implements ledger.Backend.
func (s *backend) Tokens(ctx context.Context) (list []store.Token, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, err = t.tokens()
		return err
	})
	return list, wrapped(err, "tokens")
}

func (t *tx) tokens() (list []store.Token, err error) {
	q := t.query("select name, hash, role, namespace, created, made_by, expires, last_used, terms from tokens order by name")
	for q.Next() {
		k := store.Token{Name: q.Text()}
		copy(k.Hash[:], q.View())
		k.Role, k.Namespace, k.Created, k.By, k.Expires, k.LastUsed = store.Role(q.Text()), q.Text(), q.time(), q.Text(), q.time(), q.time()
		if err := k.SetTerms(q.Text()); err != nil {
			q.Close()
			return nil, err
		}
		list = append(list, k)
	}
	return list, q.Err()
}
