package remote_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/remote"
	"github.com/belfry-cron/belfry/internal/remote/host"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/store"
)

// A worker receives only the secrets of attempts that it runs.
func TestWorkerReceivesOnlyTheSecretsOfItsAttempts(t *testing.T) { synctest.Test(t, secretsOfAttempts) }

func secretsOfAttempts(t *testing.T) {
	w := newWorld(t)
	values := map[string]string{"BELFRY_SECRET_WEB__DB": "of web", "BELFRY_SECRET_PAY__DB": "of pay"}
	keeper := &secret.Keeper{Store: w.store, Ring: &secret.Ring{Now: time.Now}, Getenv: func(name string) string { return values[name] }, Now: time.Now}
	for _, namespace := range []string{"web", "pay"} {
		for _, name := range []string{"db", "other"} {
			if _, _, err := keeper.Set(t.Context(), secret.Put{Namespace: namespace, Name: name, Source: secret.Source{Env: strings.ToUpper(name)}, Actor: "test"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, err := service.New(service.Config{Store: w.store, Tokens: w.tokens, Node: "a", Secrets: keeper})
	if err != nil {
		t.Fatal(err)
	}
	n := newNetwork()
	if n.servers["a"], err = httpapi.Handler(httpapi.Config{Service: s, Workers: host.New(host.Config{Store: w.store, Tokens: w.tokens, Secrets: keeper, Node: "a"}), Tokens: w.tokens, Node: "a", Hosts: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	token := w.grant("edge", "")
	c, err := remote.New(remote.Config{Servers: []string{"https://a"}, Token: func() (string, error) { return token, nil }, Transport: n})
	if err != nil {
		t.Fatal(err)
	}
	self, err := c.Join(t.Context(), store.Session{ID: newID(t), Node: "far", Machine: "m", DataDir: "/d", Roles: []string{store.RoleWorker}, Capacity: 10})
	if err != nil {
		t.Fatal(err)
	}
	j := w.apply(`{name: a, namespace: web, run: {shell: 'true', env: {A: '{{ .Secret.db }}', B: '{{ .Secret.gone }}'}}}`)
	attempt := store.Attempt{Job: j.Definition.UID, Run: w.trigger(j, self.ID), Number: 1, Token: newID(t)}
	of := work.SecretsOf{Session: self.ID, Attempt: attempt, Namespace: "web", Names: []string{"db"}}
	if _, err := c.Secrets(t.Context(), of); err == nil || !strings.Contains(err.Error(), "does not run attempt 1") {
		t.Errorf("before the claim: %v", err)
	}
	if _, err := c.Claim(t.Context(), self.ID, []store.Attempt{attempt}); err != nil {
		t.Fatal(err)
	}
	got, err := c.Secrets(t.Context(), of)
	if err != nil || got["db"] != "of web" || len(got) != 1 {
		t.Errorf("its secret is %v, %v", got, err)
	}
	foreign := of
	foreign.Attempt.Token = newID(t)
	if got, err := c.Secrets(t.Context(), foreign); err == nil {
		t.Errorf("with another token: %v", got)
	}
	unnamed := of
	unnamed.Names = []string{"other"}
	if got, err := c.Secrets(t.Context(), unnamed); err == nil || !strings.Contains(err.Error(), "does not name the secret other") {
		t.Errorf("a secret that the job does not name: %v, %v", got, err)
	}
	gone := of
	gone.Names = []string{"gone"}
	if _, err := c.Secrets(t.Context(), gone); !errors.As(err, new(*secret.Missing)) {
		t.Errorf("a secret that does not exist: %v", err)
	}
	delete(values, "BELFRY_SECRET_WEB__DB")
	if _, err := c.Secrets(t.Context(), of); err == nil || errors.As(err, new(*secret.Missing)) || !strings.Contains(err.Error(), "BELFRY_SECRET_WEB__DB") {
		t.Errorf("a secret that cannot be read now: %v", err)
	}
	plain := connect(t, n, token, "http://a")
	if _, err := plain.Secrets(t.Context(), of); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("without TLS: %v", err)
	}
}
