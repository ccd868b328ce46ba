package memory

import (
	"context"

	"github.com/belfry-cron/belfry/store"
)

// Tokens implements ledger.Backend.
func (s *backend) Tokens(ctx context.Context) ([]store.Token, error) {
	return locked(ctx, s, func() []store.Token { return s.allTokens() })
}

func (s *backend) allTokens() []store.Token {
	var list []store.Token
	for _, name := range sortedKeys(s.tokens) {
		list = append(list, s.tokens[name])
	}
	return list
}
