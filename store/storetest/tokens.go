package storetest

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// tokenTests are about who may call.
var tokenTests = []test{
	{"the first token is made once, whoever comes first", func(e *env) {
		first := e.putToken(store.PutToken{Name: "admin", Hash: hashOf("one"), Role: store.RoleAdmin, First: true, Actor: "belfry"})
		equal(e, "token", fmt.Sprint(first.Name, first.Role, first.By, first.Expires.IsZero()), "adminadminbelfrytrue")
		sameTime(e, "created", first.Created, e.now())
		again := e.putToken(store.PutToken{Name: "admin", Hash: hashOf("one"), Role: store.RoleAdmin, First: true, Actor: "belfry"})
		equal(e, "the same after a lost answer", again, first)
		_, err := e.PutToken(e.ctx, store.PutToken{Name: "admin-2", Hash: hashOf("two"), Role: store.RoleAdmin, First: true, Actor: "belfry"})
		e.want(err, store.ErrExists)
		equal(e, "audit", strings.Join(e.actions(), ", "), "belfry token.create admin")
	}},
	{"tokens keep what they are good for, and no two have a name or a hash", func(e *env) {
		e.admin()
		e.putToken(store.PutToken{Name: "ci", Hash: hashOf("ci"), Role: store.RoleRunner, Namespace: "web", Lasts: 24 * time.Hour, Actor: "admin"})
		_, err := e.PutToken(e.ctx, store.PutToken{Name: "ci", Hash: hashOf("other"), Role: store.RoleViewer, Actor: "admin"})
		e.want(err, store.ErrExists)
		_, err = e.PutToken(e.ctx, store.PutToken{Name: "other", Hash: hashOf("ci"), Role: store.RoleViewer, Replace: true, Actor: "admin"})
		e.want(err, store.ErrExists)
		list, err := e.Tokens(e.ctx)
		e.must(err)
		if len(list) != 2 {
			e.Fatalf("there are %d tokens", len(list))
		}
		equal(e, "names in their order", list[0].Name+" "+list[1].Name, "admin ci")
		want := store.Token{
			Name: "ci", Hash: hashOf("ci"), Role: store.RoleRunner, Namespace: "web",
			Created: e.now(), By: "admin", Expires: e.now().Add(24 * time.Hour),
		}
		equal(e, "token", list[1], want)
		records, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 1})
		e.must(err)
		equal(e, "detail", records[0].Detail, "runner in the namespace web, until 2026-11-21T12:00:00Z")
	}},
	{"sessions live as long as they are extended, and the audit leaves them out", func(e *env) {
		e.admin()
		session := store.PutToken{Name: "session/ann/1", Hash: hashOf("session"), Role: store.RoleSession, Lasts: time.Hour, Actor: "ann"}
		made := e.putToken(session)
		e.clock.Advance(30 * time.Minute)
		equal(e, "again", e.putToken(session), made)
		session.Extend = true
		extended := e.putToken(session)
		sameTime(e, "expiry", extended.Expires, e.now().Add(time.Hour))
		sameTime(e, "created", extended.Created, made.Created)
		list, err := e.Tokens(e.ctx)
		e.must(err)
		equal(e, "kept", list[1], extended)
		e.must(e.DeleteToken(e.ctx, session.Name, "ann"))
		_, err = e.PutToken(e.ctx, session)
		e.want(err, store.ErrNotFound)
		equal(e, "audit", strings.Join(e.actions(), ", "), "belfry token.create admin")
	}},
	{"a token that replaces another one ends it", func(e *env) {
		e.admin()
		e.putToken(store.PutToken{Name: "admin", Hash: hashOf("new"), Role: store.RoleAdmin, Replace: true, Actor: "belfry"})
		list, err := e.Tokens(e.ctx)
		e.must(err)
		equal(e, "tokens", len(list), 1)
		equal(e, "hash", list[0].Hash, hashOf("new"))
		equal(e, "audit", e.actions()[0], "belfry token.replace admin")
	}},
	{"a revoked token is gone, and the last that could make others stays", func(e *env) {
		e.admin()
		e.want(e.DeleteToken(e.ctx, "nobody", "admin"), store.ErrNotFound)
		e.putToken(store.PutToken{Name: "web", Hash: hashOf("web"), Role: store.RoleAdmin, Namespace: "web", Actor: "admin"})
		e.putToken(store.PutToken{Name: "short", Hash: hashOf("short"), Role: store.RoleAdmin, Lasts: time.Hour, Actor: "admin"})
		e.clock.Advance(time.Hour)
		// One is for a namespace, the other one has expired.
		e.want(e.DeleteToken(e.ctx, "admin", "admin"), store.ErrLastAdmin)
		e.putToken(store.PutToken{Name: "ann", Hash: hashOf("ann"), Role: store.RoleAdmin, Actor: "admin"})
		e.must(e.DeleteToken(e.ctx, "admin", "ann"))
		e.must(e.DeleteToken(e.ctx, "web", "ann"))
		e.must(e.DeleteToken(e.ctx, "short", "ann"))
		list, err := e.Tokens(e.ctx)
		e.must(err)
		equal(e, "tokens", len(list), 1)
		equal(e, "audit", strings.Join(e.actions()[:3], ", "), "ann token.revoke short, ann token.revoke web, ann token.revoke admin")
	}},
	{"tokens are bounded", func(e *env) {
		e.admin()
		const writers = 37 // divides them evenly
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for i := w; i < store.TokensMax-1; i += writers {
					name := fmt.Sprintf("t%d", i)
					if _, err := e.PutToken(e.ctx, store.PutToken{Name: name, Hash: hashOf(name), Role: store.RoleViewer, Actor: "admin"}); err != nil {
						e.Error(err)
					}
				}
			})
		}
		group.Wait()
		_, err := e.PutToken(e.ctx, store.PutToken{Name: "more", Hash: hashOf("more"), Role: store.RoleViewer, Actor: "admin"})
		e.want(err, store.ErrLimit)
		e.putToken(store.PutToken{Name: "t1", Hash: hashOf("again"), Role: store.RoleViewer, Replace: true, Actor: "admin"})
		e.must(e.DeleteToken(e.ctx, "t1", "admin"))
		e.putToken(store.PutToken{Name: "more", Hash: hashOf("more"), Role: store.RoleViewer, Actor: "admin"})
	}},
}

func hashOf(secret string) store.TokenHash { return sha256.Sum256([]byte(secret)) }

func (e *env) putToken(p store.PutToken) store.Token {
	e.Helper()
	t, err := e.PutToken(e.ctx, p)
	e.must(err)
	return t
}

// admin adds the token of an administrator.
func (e *env) admin() {
	e.Helper()
	e.putToken(store.PutToken{Name: "admin", Hash: hashOf("admin"), Role: store.RoleAdmin, Actor: "belfry"})
}
