package memory

import (
	"context"
	"fmt"

	"github.com/belfry-cron/belfry/store"
)

// PutToken implements store.Tokens.
func (s *Store) PutToken(ctx context.Context, p store.PutToken) (store.Token, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return store.Token{}, err
	}
	defer unlock()
	b := s.batch()
	t, changed, err := b.PutToken(s.allTokens(), &p)
	if err != nil {
		return store.Token{}, fmt.Errorf("add the token %s: %w", p.Name, err)
	}
	if changed {
		s.tokens[t.Name] = t
		s.write(b)
	}
	return t, nil
}

// DeleteToken implements store.Tokens.
func (s *Store) DeleteToken(ctx context.Context, name, actor string) error {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return err
	}
	defer unlock()
	b := s.batch()
	if err := b.DeleteToken(s.allTokens(), name, actor); err != nil {
		return fmt.Errorf("revoke the token %s: %w", name, err)
	}
	delete(s.tokens, name)
	s.write(b)
	return nil
}

// Tokens implements store.Tokens.
func (s *Store) Tokens(ctx context.Context) ([]store.Token, error) {
	unlock, err := s.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.allTokens(), nil
}

func (s *Store) allTokens() []store.Token {
	var list []store.Token
	for _, name := range sortedKeys(s.tokens) {
		list = append(list, s.tokens[name])
	}
	return list
}
