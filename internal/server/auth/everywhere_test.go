package auth_test

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/store"
)

// people are admins for an hour.
type people struct{}

func (people) Roles(*store.Person) map[string]store.Role {
	return map[string]store.Role{"": store.RoleAdmin}
}
func (people) Lasts() time.Duration { return time.Hour }

func TestOnlyTheSessionsOfOnePersonEndTogether(t *testing.T) {
	w := newSessionWorld(t)
	sessions := auth.NewSessions(auth.New(w.store, func() time.Time { return w.now }), people{})
	begin := func(provider, subject string) string {
		secret, err := sessions.BeginPerson(t.Context(), &store.Person{Provider: provider, Subject: subject, Name: subject})
		w.must(err)
		return secret
	}
	secrets := map[string]string{
		"ann": begin("https://a.example", "ann"), "ann elsewhere": begin("https://a.example", "ann"),
		"bob": begin("https://a.example", "bob"), "another ann": begin("https://b.example", "ann"),
	}
	token, err := sessions.Begin(t.Context(), w.token)
	w.must(err)
	secrets["a token"] = token
	w.must(sessions.EndAll(t.Context(), secrets["ann"]))
	for name, holds := range map[string]bool{"ann": false, "ann elsewhere": false, "bob": true, "another ann": true, "a token": true} {
		if _, err := sessions.Holder(t.Context(), secrets[name]); (err == nil) != holds {
			t.Errorf("the session of %s holds: %v, want %t", name, err, holds)
		}
	}
	w.must(sessions.EndAll(t.Context(), "a guess"))
}
