package remote_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/remote"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// refusedFor reports an error that is not a refusal with this text.
func refusedFor(t *testing.T, err error, want string) {
	t.Helper()
	var refused *remote.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, and should be refused for %q", err, want)
	}
}

func TestAWorkerExchangesAJoiningTokenOnceForItsOwn(t *testing.T) { synctest.Test(t, joining) }

func joining(t *testing.T) {
	w := newWorld(t)
	n := newNetwork()
	n.servers["a"] = w.server(t.Context(), "a")
	joins, err := auth.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.store.PutToken(t.Context(), store.PutToken{
		Name: "rack", Hash: auth.HashOf(joins), Role: store.RoleJoin, Namespace: "web", Actor: "admin",
		Terms: store.Terms{Uses: 2, Labels: []string{"zone=a", "rack=*"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.tokens.Forget()
	dir := t.TempDir()
	own, joined, err := auth.OwnToken(dir)
	if err != nil || joined {
		t.Fatal(joined, err)
	}
	c := connect(t, n, own, "http://a")
	ask := wire.OwnToken{Node: "Web 1", Hash: auth.HashText(auth.HashOf(own))}
	for range 2 { // the second time after a lost answer
		granted, err := c.Exchange(t.Context(), joins, ask)
		if err != nil || granted.Name != "rack.web-1" || granted.Namespace != "web" || strings.Join(granted.Labels, " ") != "zone=a rack=*" {
			t.Fatalf("granted is %+v, %v", granted, err)
		}
		if again, joined, err := auth.OwnToken(dir); err != nil || joined || again != own {
			t.Fatal("a token that was not taken yet is another one at the next start", joined, err)
		}
	}
	if err := auth.KeepOwnToken(dir); err != nil {
		t.Fatal(err)
	}
	if stem, joined, err := auth.OwnToken(dir); err != nil || !joined || stem != own {
		t.Fatal("the token of the worker is not kept", joined, err)
	}

	// The token works only in the namespace and with the labels of the joining token.
	session := func(labels map[string]string) store.Session {
		return store.Session{ID: newID(t), Node: "web-1", Machine: "m", DataDir: "/d", Roles: []string{store.RoleWorker}, Labels: labels, Capacity: 1}
	}
	if _, err := c.Join(t.Context(), session(map[string]string{"zone": "a", "rack": "7", "arch": "arm64", "host": "db-1"})); err != nil {
		t.Fatal(err)
	}
	sessions, err := w.store.Sessions(t.Context())
	if err != nil || len(sessions) != 1 {
		t.Fatal(sessions, err)
	}
	labels := sessions[0].Labels
	if labels["zone"] != "a" || labels["rack"] != "7" || labels[job.LabelWorker] != "rack" || labels[job.LabelWorkerNamespace] != "web" {
		t.Errorf("the labels are %v", labels)
	}
	if labels["host"] != "" || labels["arch"] != "" {
		t.Errorf("the worker has the labels %v, which its token does not allow", labels)
	}
	_, err = c.Join(t.Context(), session(map[string]string{"zone": "b", "gpu": "yes", "rack": "7"}))
	refusedFor(t, err, "the token rack.web-1 does not allow the label gpu=yes, zone=b: its workers may have zone=a, rack=*")

	// The joining token has one use left, and no other right.
	hash := func(secret string) string { return auth.HashText(auth.HashOf(secret)) }
	refusedFor(t, connect(t, n, joins, "http://a").Wait(t.Context()), "has the role join, and this needs worker")
	_, err = c.Exchange(t.Context(), own, wire.OwnToken{Node: "x", Hash: hash("x")})
	refusedFor(t, err, "has the role worker, and this needs join")
	_, err = c.Exchange(t.Context(), joins, wire.OwnToken{Node: "web-1", Hash: hash("another")})
	refusedFor(t, err, "there is already a token rack.web-1: a worker web-1 has joined before")
	if _, err = c.Exchange(t.Context(), joins, wire.OwnToken{Node: "web-2", Hash: hash("two")}); err != nil {
		t.Error(err)
	}
	_, err = c.Exchange(t.Context(), joins, wire.OwnToken{Node: "web-3", Hash: hash("three")})
	refusedFor(t, err, "the joining token rack is used up")

	// A revoked worker is refused, and its joining token does not admit it again.
	if err := w.store.DeleteToken(t.Context(), "rack.web-1", "admin"); err != nil {
		t.Fatal(err)
	}
	w.tokens.Forget()
	var refused *remote.RefusedError
	if err := connect(t, n, own, "http://a").Wait(t.Context()); !errors.As(err, &refused) || refused.Problem.Type != client.TypeUnauthenticated {
		t.Errorf("a revoked worker is let in: %v", err)
	}
	audit, _, err := w.store.Audit(context.Background(), store.AuditQuery{Object: "rack.web-1", Limit: 10})
	if err != nil || len(audit) != 2 || audit[1].Actor != "rack" || audit[1].Action != "token.join" {
		t.Errorf("the audit is %+v, %v", audit, err)
	}
}
