package engine

import (
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// PutToken decides about a token that is to be added to those that a store has.
// It returns the token as it is to be written, and whether anything changes.
func (b *Batch) PutToken(have []store.Token, p *store.PutToken) (t store.Token, changed bool, err error) {
	replaces, kin := false, 0
	for _, old := range have {
		if old.Role.StandsIn() == p.Role.StandsIn() {
			kin++
		}
		switch {
		case old.Hash == p.Hash && old.Name == p.Name && p.Extend:
			old.Expires = b.now.Add(p.Lasts)
			return old, true, nil
		case old.Hash == p.Hash && old.Name == p.Name:
			return old, false, nil // the answer was lost
		case old.Hash == p.Hash, p.First, old.Name == p.Name && !p.Replace:
			return t, false, store.ErrExists
		case old.Name == p.Name:
			replaces = true
		}
	}
	most := store.TokensMax
	if p.Role.StandsIn() {
		most = store.SessionsMax
	}
	if p.Extend {
		return t, false, store.ErrNotFound
	}
	if kin >= most && !replaces {
		return t, false, fmt.Errorf("%d tokens: %w", kin, store.ErrLimit)
	}
	t = store.Token{Name: p.Name, Hash: p.Hash, Role: p.Role, Namespace: p.Namespace, Created: b.now, By: p.Actor}
	if p.Lasts > 0 {
		t.Expires = b.now.Add(p.Lasts)
	}
	if p.Role.StandsIn() {
		return t, true, nil
	}
	action := "token.create"
	if replaces {
		action = "token.replace"
	}
	b.audit(p.Actor, action, p.Name, 0, tokenInWords(&t))
	return t, true, nil
}

// DeleteToken decides about the revocation of a token.
func (b *Batch) DeleteToken(have []store.Token, name, actor string) error {
	var gone *store.Token
	admins := 0 // that are left
	for i := range have {
		t := &have[i]
		switch {
		case t.Name == name:
			gone = t
		case administers(t) && t.Valid(b.now):
			admins++
		}
	}
	switch {
	case gone == nil:
		return store.ErrNotFound
	case admins == 0 && administers(gone):
		return store.ErrLastAdmin
	}
	if gone.Role.StandsIn() {
		return nil
	}
	b.audit(actor, "token.revoke", name, 0, tokenInWords(gone))
	return nil
}

// administers reports whether a token can make others.
func administers(t *store.Token) bool { return t.Role == store.RoleAdmin && t.Namespace == "" }

// tokenInWords says what a token is good for.
func tokenInWords(t *store.Token) string {
	text := string(t.Role)
	if t.Namespace != "" {
		text += " in the namespace " + t.Namespace
	}
	if !t.Expires.IsZero() {
		text += ", until " + t.Expires.Format(time.RFC3339)
	}
	return text
}
