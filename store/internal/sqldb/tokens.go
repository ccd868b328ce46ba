package sqldb

import (
	"context"
	"fmt"

	"github.com/belfry-cron/belfry/store"
)

var tokenRows = &Table{Name: "tokens", Key: 1, Columns: []Column{
	{"name", Text}, {"hash", Blob}, {"role", Text}, {"namespace", Text}, {"created", Int}, {"made_by", Text}, {"expires", Int},
}}

// PutToken implements store.Tokens.
func (s *Store) PutToken(ctx context.Context, p store.PutToken) (out store.Token, err error) {
	err = s.write(ctx, func(t *tx) error {
		if err := t.lock(tokensLock); err != nil {
			return err
		}
		have, err := t.tokens()
		if err != nil {
			return err
		}
		st, err := t.step(about{})
		if err != nil {
			return err
		}
		var changed bool
		if out, changed, err = st.b.PutToken(have, &p); err != nil || !changed {
			return err
		}
		b := tokenRows.rows(1).text(out.Name).blob(out.Hash[:]).text(string(out.Role)).text(out.Namespace)
		if err := t.writeRows(Upsert, b.time(out.Created).text(out.By).time(out.Expires)); err != nil {
			return err
		}
		return st.write()
	})
	if err != nil {
		return store.Token{}, fmt.Errorf("add the token %s: %w", p.Name, err)
	}
	return out, nil
}

// DeleteToken implements store.Tokens.
func (s *Store) DeleteToken(ctx context.Context, name, actor string) error {
	err := s.write(ctx, func(t *tx) error {
		if err := t.lock(tokensLock); err != nil {
			return err
		}
		have, err := t.tokens()
		if err != nil {
			return err
		}
		st, err := t.step(about{})
		if err != nil {
			return err
		}
		if err := st.b.DeleteToken(have, name, actor); err != nil {
			return t.gone(err)
		}
		if err := t.exec("delete from tokens where name = ?", name); err != nil {
			return err
		}
		return st.write()
	})
	return wrapped(err, "revoke the token %s", name)
}

// Tokens implements store.Tokens.
func (s *Store) Tokens(ctx context.Context) (list []store.Token, err error) {
	err = s.read(ctx, func(t *tx) error {
		list, err = t.tokens()
		return err
	})
	return list, wrapped(err, "tokens")
}

func (t *tx) tokens() (list []store.Token, err error) {
	q := t.query("select name, hash, role, namespace, created, made_by, expires from tokens order by name")
	for q.Next() {
		k := store.Token{Name: q.Text()}
		copy(k.Hash[:], q.View())
		k.Role, k.Namespace, k.Created, k.By, k.Expires = store.Role(q.Text()), q.Text(), q.time(), q.Text(), q.time()
		list = append(list, k)
	}
	return list, q.Err()
}
