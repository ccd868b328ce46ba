package storetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// tokenTests are about who may call.
var tokenTests = []test{
	{"the first token is created once among concurrent nodes", func(e *env) {
		first := e.putToken(store.PutToken{Name: "admin", Hash: hashOf("one"), Role: store.RoleAdmin, First: true, Actor: "belfry"})
		equal(e, "token", fmt.Sprint(first.Name, first.Role, first.By, first.Expires.IsZero()), "adminadminbelfrytrue")
		sameTime(e, "created", first.Created, e.now())
		again := e.putToken(store.PutToken{Name: "admin", Hash: hashOf("one"), Role: store.RoleAdmin, First: true, Actor: "belfry"})
		sameToken(e, "the same after a lost answer", again, first)
		_, err := e.PutToken(e.ctx, store.PutToken{Name: "admin-2", Hash: hashOf("two"), Role: store.RoleAdmin, First: true, Actor: "belfry"})
		e.want(err, store.ErrExists)
		equal(e, "audit", strings.Join(e.actions(), ", "), "belfry token.create admin")
	}},
	{"tokens keep their terms and have distinct names and hashes", func(e *env) {
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
		sameToken(e, "token", list[1], want)
		records, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 1})
		e.must(err)
		equal(e, "detail", records[0].Detail.String(), "runner in the namespace web, until 2026-11-21T12:00:00Z")
	}},
	{"sessions live as long as they are extended, and the audit leaves them out", func(e *env) {
		e.admin()
		session := store.PutToken{Name: "session/ann/1", Hash: hashOf("session"), Role: store.RoleSession, Lasts: time.Hour, Actor: "ann"}
		tok := e.putToken(session)
		e.clock.Advance(30 * time.Minute)
		sameToken(e, "again", e.putToken(session), tok)
		session.Extend = true
		extended := e.putToken(session)
		sameTime(e, "expiry", extended.Expires, e.now().Add(time.Hour))
		sameTime(e, "created", extended.Created, tok.Created)
		list, err := e.Tokens(e.ctx)
		e.must(err)
		sameToken(e, "kept", list[1], extended)
		e.must(e.DeleteToken(e.ctx, session.Name, "ann"))
		_, err = e.PutToken(e.ctx, session)
		e.want(err, store.ErrNotFound)
		equal(e, "audit", strings.Join(e.actions(), ", "), "belfry token.create admin")
	}},
	{"a replacing token ends the old one", func(e *env) {
		e.admin()
		e.putToken(store.PutToken{Name: "admin", Hash: hashOf("new"), Role: store.RoleAdmin, Replace: true, Actor: "belfry"})
		list, err := e.Tokens(e.ctx)
		e.must(err)
		equal(e, "tokens", len(list), 1)
		equal(e, "hash", list[0].Hash, hashOf("new"))
		equal(e, "audit", e.actions()[0], "belfry token.replace admin")
	}},
	{"a revoked token is gone and the last admin token stays", func(e *env) {
		e.admin()
		e.want(e.DeleteToken(e.ctx, "nobody", "admin"), store.ErrNotFound)
		e.putToken(store.PutToken{Name: "web", Hash: hashOf("web"), Role: store.RoleAdmin, Namespace: "web", Actor: "admin"})
		e.putToken(store.PutToken{Name: "short", Hash: hashOf("short"), Role: store.RoleAdmin, Lasts: time.Hour, Actor: "admin"})
		e.clock.Advance(time.Hour)
		// One is for a namespace, the other has expired.
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
	{"the use of a token is noted without other changes", func(e *env) {
		e.admin()
		ci := store.PutToken{Name: "ci", Hash: hashOf("ci"), Role: store.RoleRunner, Namespace: "web", Lasts: 24 * time.Hour, Actor: "admin"}
		want := e.putToken(ci)
		equal(e, "used", want.LastUsed.IsZero(), true)
		e.clock.Advance(time.Hour)
		want.LastUsed = e.now()
		sameToken(e, "used", e.putToken(store.PutToken{Name: "ci", Hash: hashOf("ci"), Used: true, Actor: "belfry"}), want)
		sameToken(e, "kept", e.token("ci"), want)
		for _, other := range []store.PutToken{{Name: "ci", Hash: hashOf("other")}, {Name: "other", Hash: hashOf("other")}} {
			other.Used, other.Actor = true, "belfry"
			if _, err := e.PutToken(e.ctx, other); err == nil {
				e.Errorf("the use of %q is noted, which is not there", other.Name)
			}
		}
		equal(e, "audit", strings.Join(e.actions(), ", "), "admin token.create ci, belfry token.create admin")
	}},
	{"a session keeps its person and the audit names who began it", func(e *env) {
		e.admin()
		ann := store.Person{
			Provider: "sso", Subject: "17", Name: "ann@example.org", Email: "ann@example.org", Groups: []string{"ops", "web, \"it\""},
			SignedIn: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC),
		}
		tok := e.putToken(store.PutToken{
			Name: "session/sso/1", Hash: hashOf("session"), Role: store.RoleSession, Lasts: time.Hour, Actor: "belfry", Said: job.Text("viewer in web"), Terms: store.Terms{Person: &ann},
		})
		equal(e, "person", fmt.Sprint(*tok.Person), fmt.Sprint(ann))
		sameToken(e, "kept", e.token("session/sso/1"), tok)
		records, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 1})
		e.must(err)
		equal(e, "audit", records[0].Actor+" "+records[0].Action+" "+records[0].Object+": "+records[0].Detail.String(), "sso:ann@example.org session.begin sso:ann@example.org: viewer in web")
	}},
	{"the end of a person's session is audited if an administrator ends it", func(e *env) {
		e.admin()
		ann := store.Person{Provider: "sso", Subject: "17", Name: "ann@example.org"}
		for _, name := range []string{"session/sso/1", "session/sso/2"} {
			e.putToken(store.PutToken{Name: name, Hash: hashOf(name), Role: store.RoleSession, Lasts: time.Hour, Actor: "belfry", Terms: store.Terms{Person: &ann}})
		}
		e.must(e.DeleteToken(e.ctx, "session/sso/1", "belfry")) // expired, or logged out
		e.must(e.DeleteToken(e.ctx, "session/sso/2", "admin"))
		records, _, err := e.Audit(e.ctx, store.AuditQuery{Limit: 2})
		e.must(err)
		equal(e, "audit", records[0].Actor+" "+records[0].Action+" "+records[0].Object+": "+records[0].Detail.String(), "admin session.end sso:ann@example.org: subject 17 of sso")
		equal(e, "before", records[1].Action, "token.create")
	}},
	{"a joining token is exchanged up to its limit and passes on its terms", func(e *env) {
		e.admin()
		labels := []string{"rack=*", "zone=a"}
		e.putToken(store.PutToken{
			Name: "rack", Hash: hashOf("rack"), Role: store.RoleJoin, Namespace: "web", Lasts: time.Hour, Actor: "admin",
			Terms: store.Terms{Labels: labels, Uses: 2, Certificate: "*.example.org"},
		})
		join := func(name string) (store.Token, error) {
			return e.PutToken(e.ctx, store.PutToken{Name: name, Hash: hashOf(name), Joins: hashOf("rack"), Actor: "rack", Terms: store.Terms{Certificate: name + ".example.org"}})
		}
		e.clock.Advance(time.Minute)
		one, err := join("one")
		e.must(err)
		want := store.Token{
			Name: "one", Hash: hashOf("one"), Role: store.RoleRemote, Namespace: "web", Created: e.now(), By: "rack",
			Terms: store.Terms{Labels: labels, Certificate: "one.example.org", Worker: "rack"},
		}
		sameToken(e, "token", one, want)
		sameToken(e, "kept", e.token("one"), want)
		equal(e, "uses left", e.token("rack").Uses, 1)
		sameTime(e, "used", e.token("rack").LastUsed, e.now())
		again, err := join("one")
		e.must(err)
		sameToken(e, "again after a lost answer", again, one)
		equal(e, "uses left", e.token("rack").Uses, 1)
		_, err = e.PutToken(e.ctx, store.PutToken{Name: "one", Hash: hashOf("another"), Joins: hashOf("rack"), Actor: "rack"})
		e.want(err, store.ErrExists)

		// Of several concurrent workers no more join than the bound allows.
		var group sync.WaitGroup
		var joined, refused atomic.Int32
		for i := range 8 {
			group.Go(func() {
				switch _, err := join(fmt.Sprintf("many-%d", i)); {
				case err == nil:
					joined.Add(1)
				case errors.Is(err, store.ErrLimit):
					refused.Add(1)
				default:
					e.Error(err)
				}
			})
		}
		group.Wait()
		equal(e, "joined and refused", fmt.Sprint(joined.Load(), refused.Load()), "1 7")
		equal(e, "audit", strings.Contains(strings.Join(e.actions(), ", "), "rack token.join one, admin token.create rack"), true)

		e.putToken(store.PutToken{Name: "late", Hash: hashOf("late"), Role: store.RoleJoin, Lasts: time.Hour, Actor: "admin", Terms: store.Terms{Uses: 1}})
		e.clock.Advance(time.Hour)
		for _, of := range []string{"late", "absent", "admin"} {
			_, err = e.PutToken(e.ctx, store.PutToken{Name: "two", Hash: hashOf("two"), Joins: hashOf(of), Actor: of})
			e.want(err, store.ErrNotFound)
		}
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

// token returns an existing token.
func (e *env) token(name string) store.Token {
	e.Helper()
	list, err := e.Tokens(e.ctx)
	e.must(err)
	i := slices.IndexFunc(list, func(t store.Token) bool { return t.Name == name })
	if i < 0 {
		e.Fatalf("there is no token %s", name)
	}
	return list[i]
}

// sameToken reports a difference between tokens.
func sameToken(e *env, what string, got, want store.Token) {
	e.Helper()
	if !reflect.DeepEqual(got, want) {
		e.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}
