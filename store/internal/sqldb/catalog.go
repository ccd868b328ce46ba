package sqldb

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// documents returns all documents of some kinds.
func (t *tx) documents(kinds ...job.Kind) (engine.Documents, error) {
	all := engine.Documents{}
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = string(kind)
	}
	q := t.query("select kind, definition from documents where kind in (?*)", names)
	for q.Next() {
		d, err := columns.DecodeDocument(job.Kind(q.Text()), q.View())
		if err != nil {
			q.Close()
			return nil, err
		}
		all.Put(d)
	}
	return all, q.Err()
}

// Documents implements ledger.Backend.
func (s *backend) Documents(ctx context.Context, kinds ...job.Kind) (list []job.Document, err error) {
	err = s.read(ctx, func(t *tx) error {
		all, err := t.documents(kinds...)
		list = all.List(kinds...)
		return err
	})
	return list, wrapped(err, "documents")
}

// windowsName is the setting that changes with each window and calendar. Steps read it with the
// sessions, and the windows themselves only when it has changed.
const windowsName = "windows"

// markedWindows are the windows of a mark.
type markedWindows struct {
	mark string
	all  *engine.Windows
}

// windows returns the windows, from the cache if they are unchanged.
func (st *step) windows() (*engine.Windows, error) {
	if known := st.s.windows.Load(); known != nil && known.mark == st.windowsMark {
		return known.all, nil
	}
	documents, err := st.documents(job.KindWindow, job.KindCalendar)
	if err != nil {
		return nil, err
	}
	read := &markedWindows{st.windowsMark, engine.NewWindows(documents)}
	st.s.windows.Store(read)
	return read.all, nil
}

// markWindows changes the mark of the windows if a step has changed one.
func (st *step) markWindows(c *engine.Changes) error {
	marks := func(kind job.Kind) bool { return kind == job.KindWindow || kind == job.KindCalendar }
	if !slices.ContainsFunc(c.Documents, func(d job.Document) bool { return marks(d.Kind) }) &&
		!slices.ContainsFunc(c.Dropped, func(d engine.Dropped) bool { return marks(d.Kind) }) {
		return nil
	}
	return st.writeRows(Upsert, st.rows(settings, 1).text(windowsName).text(strconv.FormatUint(rand.Uint64(), 36)))
}

var documentRows = &Table{Name: "documents", Key: 2, Columns: []Column{
	{"kind", Text}, {"full_name", Text}, {"uid", Blob}, {"version", Int}, {"definition", Text},
}}

var tokenRows = &Table{Name: "tokens", Key: 1, Columns: []Column{
	{"name", Text}, {"hash", Blob}, {"role", Text}, {"namespace", Text}, {"created", Int}, {"made_by", Text}, {"expires", Int}, {"last_used", Int}, {"terms", Text},
}}

// writeDocuments writes documents, tokens, notes and the turns of lines.
func (st *step) writeDocuments(c *engine.Changes) error {
	if err := st.markWindows(c); err != nil {
		return err
	}
	documents, tokens := st.rows(documentRows, 0), st.rows(tokenRows, 0)
	for _, d := range c.Documents {
		text, err := columns.EncodeDocument(d)
		if err != nil {
			return err
		}
		uid := d.UID()
		documents.text(string(d.Kind)).text(d.FullName()).id(&uid).int(d.Version()).text(string(text))
	}
	for i := range c.Tokens {
		t := &c.Tokens[i]
		tokens.text(t.Name).blob(t.Hash[:]).text(string(t.Role)).text(t.Namespace).time(t.Created).text(t.By).time(t.Expires).time(t.LastUsed).text(t.TermsText())
	}
	turns := st.rows(poolTurns, len(c.Turns))
	for _, moved := range c.Turns {
		turns.text(moved.Line).time(moved.At)
	}
	if err := st.writeRows(Upsert, turns); err != nil {
		return err
	}
	for _, n := range c.Notes {
		if err := st.writeNote(n); err != nil {
			return err
		}
	}
	for _, d := range c.Dropped {
		var err error
		if d.Kind == "" {
			err = st.exec("delete from tokens where name = ?", d.Name)
		} else {
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
