package engine

import (
	"fmt"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// PutToken decides whether to add a token to the stored ones. It returns the token to write, and
// whether anything changes.
func (b *Batch) PutToken(have []store.Token, p *store.PutToken) (t store.Token, changed bool, err error) {
	if p.Joins != (store.TokenHash{}) {
		return b.joinToken(have, p)
	}
	replaces, kin := false, 0
	for _, old := range have {
		if old.Role.StandsIn() == p.Role.StandsIn() {
			kin++
		}
		switch {
		case old.Hash == p.Hash && old.Name == p.Name && p.Extend:
			old.Expires = b.now.Add(p.Lasts)
			return old, true, nil
		case old.Hash == p.Hash && old.Name == p.Name && p.Used:
			old.LastUsed = b.now
			return old, true, nil
		case old.Hash == p.Hash && old.Name == p.Name:
			return old, false, nil // its answer was lost
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
	if p.Extend || p.Used {
		return t, false, store.ErrNotFound
	}
	if kin >= most && !replaces {
		return t, false, fmt.Errorf("%d tokens: %w", kin, store.ErrLimit)
	}
	t = store.Token{Name: p.Name, Hash: p.Hash, Role: p.Role, Namespace: p.Namespace, Created: b.now, By: p.Actor, Terms: p.Terms}
	if p.Lasts > 0 {
		t.Expires = b.now.Add(p.Lasts)
	}
	if p.Role.StandsIn() {
		if p.Person != nil && !p.Said.IsZero() {
			b.audit(p.Person.Actor(), "session.begin", p.Person.Actor(), 0, p.Said)
		}
		return t, true, nil
	}
	action := "token.create"
	if replaces {
		action = "token.replace"
	}
	b.audit(p.Actor, action, p.Name, 0, termsOf(&t))
	return t, true, nil
}

// joinToken decides about the token of a worker that is exchanged for a use of a joining token.
func (b *Batch) joinToken(have []store.Token, p *store.PutToken) (t store.Token, changed bool, err error) {
	var joins *store.Token
	kin := 0
	for i := range have {
		old := &have[i]
		switch {
		case old.Hash == p.Hash && old.Name == p.Name:
			return *old, false, nil // its answer was lost
		case old.Hash == p.Hash, old.Name == p.Name:
			return t, false, store.ErrExists
		case old.Hash == p.Joins && old.Role == store.RoleJoin && old.Valid(b.now):
			joins = old
		}
		if !old.Role.StandsIn() {
			kin++
		}
	}
	switch {
	case joins == nil:
		return t, false, store.ErrNotFound
	case joins.Uses <= 0:
		return t, false, fmt.Errorf("the joining token %s is used up: %w", joins.Name, store.ErrLimit)
	case kin >= store.TokensMax:
		return t, false, fmt.Errorf("%d tokens: %w", kin, store.ErrTooMany)
	}
	used := *joins
	used.Uses--
	used.LastUsed = b.now
	b.done.Tokens = append(b.done.Tokens, used)
	t = store.Token{
		Name: p.Name, Hash: p.Hash, Role: store.RoleRemote, Namespace: joins.Namespace, Created: b.now, By: p.Actor,
		Terms: store.Terms{Labels: joins.Labels, Certificate: p.Certificate, Worker: joins.Name},
	}
	b.audit(p.Actor, "token.join", p.Name, 0, reason.TokenJoinedBy.Of(termsOf(&t), used.Uses))
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
		if gone.Person != nil && actor != System {
			b.audit(actor, "session.end", gone.Person.Actor(), 0, reason.SessionEnded.Of(gone.Person.Subject, gone.Person.Provider))
		}
		return nil
	}
	b.audit(actor, "token.revoke", name, 0, termsOf(gone))
	return nil
}

// administers reports whether a token can create others.
func administers(t *store.Token) bool { return t.Role == store.RoleAdmin && t.Namespace == "" }

// termsOf describes a token for the audit.
func termsOf(t *store.Token) job.Reason {
	var more job.Reason
	switch {
	case t.Certificate != "":
		more = reason.TokenPinned.Of(t.Certificate, t.Expires)
	case t.Role == store.RoleJoin:
		more = reason.TokenForSome.Of(t.Uses, t.Expires)
	case !t.Expires.IsZero():
		more = reason.TokenUntil.Of(t.Expires)
	}
	return reason.TokenTerms.Of(string(t.Role), t.Namespace, t.Labels, more)
}
