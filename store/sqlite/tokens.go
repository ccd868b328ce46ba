package sqlite

import (
	"context"

	"github.com/belfry-cron/belfry/store"
)

// PutToken implements store.Tokens.
func (s *Store) PutToken(ctx context.Context, p store.PutToken) (out store.Token, err error) {
	err = s.grow(ctx, func(t *tx) error {
		have, err := tokens(t.conn)
		if err != nil {
			return err
		}
		st, err := t.step(1)
		if err != nil {
			return err
		}
		var changed bool
		if out, changed, err = st.b.PutToken(have, &p); err != nil || !changed {
			return err
		}
		q := t.stmt("insert or replace into tokens (name, hash, role, namespace, created, by, expires) values (?, ?, ?, ?, ?, ?, ?)")
		q.bindText(out.Name).bindBlob(out.Hash[:]).bindText(string(out.Role)).bindText(out.Namespace)
		if err := q.bindTime(out.Created).bindText(out.By).bindTime(out.Expires).exec(); err != nil {
			return err
		}
		return st.write()
	})
	return out, wrapped(err, "add the token %s", p.Name)
}

// DeleteToken implements store.Tokens.
func (s *Store) DeleteToken(ctx context.Context, name, actor string) error {
	err := s.write(ctx, func(t *tx) error {
		have, err := tokens(t.conn)
		if err != nil {
			return err
		}
		st, err := t.step(1)
		if err != nil {
			return err
		}
		if err := st.b.DeleteToken(have, name, actor); err != nil {
			return err
		}
		if err := t.stmt("delete from tokens where name = ?").bindText(name).exec(); err != nil {
			return err
		}
		return st.write()
	})
	return wrapped(err, "revoke the token %s", name)
}

// Tokens implements store.Tokens.
func (s *Store) Tokens(ctx context.Context) (list []store.Token, err error) {
	err = s.read(ctx, func(c *conn) error {
		list, err = tokens(c)
		return err
	})
	return list, wrapped(err, "tokens")
}

func tokens(c *conn) (list []store.Token, err error) {
	q := c.stmt("select name, hash, role, namespace, created, by, expires from tokens order by name")
	for q.next() {
		t := store.Token{Name: q.text()}
		copy(t.Hash[:], q.view())
		t.Role, t.Namespace, t.Created, t.By, t.Expires = store.Role(q.text()), q.text(), q.time(), q.text(), q.time()
		list = append(list, t)
	}
	return list, q.err()
}
