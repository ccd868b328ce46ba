package xxlexec

import (
	"context"
	"crypto/subtle"
	"errors"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// groupTokenLife is how long the token of a group is cached: its secret may be in a vault, and may
// have changed because of a leak.
const groupTokenLife = time.Minute

// groupTokens are the tokens of groups with their own.
type groupTokens struct {
	mu  sync.Mutex
	all map[string]groupToken
}

// groupToken is the token of a group, from a secret.
type groupToken struct {
	namespace, name string
	value           string
	hash            tokenHash
	read            time.Time
}

// refresh reads the secrets that documents name. An unreadable secret keeps its former value.
func (g *groupTokens) refresh(ctx context.Context, a *Admin, listed []job.Document) {
	g.mu.Lock()
	before := g.all
	g.mu.Unlock()
	next := map[string]groupToken{}
	for _, d := range listed {
		l := d.Executors
		group := l.Appname()
		if _, twice := next[group]; l.Token == "" || twice {
			continue
		}
		t := groupToken{namespace: l.Namespace, name: l.Token}
		if was := before[group]; was.namespace == t.namespace && was.name == t.name {
			t = was
		}
		if time.Since(t.read) >= groupTokenLife {
			t.read = time.Now()
			value, err := a.readSecret(ctx, t.namespace, t.name)
			if err != nil {
				a.log.Error("the access token of a group of executors cannot be read", "group", group, "document", l.FullName(), "error", err)
			} else {
				t.value, t.hash = value, hashOf(value)
			}
		}
		next[group] = t
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = next
}

func (a *Admin) readSecret(ctx context.Context, namespace, name string) (string, error) {
	if a.secret == nil {
		return "", errors.New("this node reads no secrets")
	}
	value, err := a.secret(ctx, namespace, name)
	if err == nil && value == "" {
		err = errors.New("it is empty")
	}
	return value, err
}

// tokenOf returns the token that executors of a group are shown.
func (a *Admin) tokenOf(group string) string {
	a.groups.mu.Lock()
	own := a.groups.all[group].value
	a.groups.mu.Unlock()
	if own != "" {
		return own
	}
	return a.current.Load().Tokens[0]
}

// whose returns the group whose executors may show a token, "" for all groups; ok is false for
// no group. It compares the token with every other, so that its time shows nothing.
func (a *Admin) whose(s *settings, token string) (group string, ok bool) {
	ok = s.isToken(token)
	given := hashOf(token)
	a.groups.mu.Lock()
	defer a.groups.mu.Unlock()
	own := ""
	for name, t := range a.groups.all {
		if t.value != "" && subtle.ConstantTimeCompare(given[:], t.hash[:]) == 1 {
			own = name
		}
	}
	if ok {
		return "", true
	}
	return own, own != ""
}
