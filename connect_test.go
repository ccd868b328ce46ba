package belfry_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/internal/remote/host"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/httpapi"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

// newServer starts a server on a store until ctx ends, and returns its address and the token of
// a worker.
func newServer(ctx context.Context, on store.Store, namespace string) (address, token string, err error) {
	tokens := auth.New(on, nil)
	if token, err = auth.NewSecret(); err != nil {
		return "", "", err
	}
	if _, err := on.PutToken(ctx, store.PutToken{Name: "edge", Hash: auth.HashOf(token), Role: store.RoleRemote, Namespace: namespace, Actor: "test"}); err != nil {
		return "", "", err
	}
	svc, err := service.New(service.Config{Store: on, Tokens: tokens, Node: "server"})
	if err != nil {
		return "", "", err
	}
	workers := host.New(host.Config{Store: on, Tokens: tokens, Node: "server"})
	go workers.Run(ctx)
	listener := httptest.NewUnstartedServer(nil)
	listener.Config.Handler, err = httpapi.Handler(httpapi.Config{Service: svc, Workers: workers, Tokens: tokens, Node: "server", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return "", "", err
	}
	listener.Start()
	context.AfterFunc(ctx, listener.Close)
	return listener.URL, token, nil
}

// shared returns an opener of a store that does not close with one of its schedulers.
func shared(s *memory.Store) store.Opener {
	return func(context.Context) (store.Store, error) { return open{s}, nil }
}

type open struct{ *memory.Store }

func (open) Close() error { return nil }

func TestAConnectedProgramRunsItsHandlersForAServer(t *testing.T) {
	on := memory.New(memory.Options{})
	serving, stopServer := context.WithCancel(context.Background())
	defer stopServer()
	address, token, err := newServer(serving, on, "")
	if err != nil {
		t.Fatal(err)
	}
	planner := belfry.New(shared(on), belfry.WithLogger(slog.New(slog.DiscardHandler)))
	planner.Job("nightly", belfry.Cron("30 2 * * *"), belfry.PlaceOn(map[string]string{"zone": "far"}), belfry.Do("cleanup", cleanup{Days: 30, Table: "orders"}))

	// The first address answers nothing, and the token is read by a function.
	far := belfry.Connect("http://127.0.0.1:1", "", belfry.WithServers(address), belfry.WithToken(func() (string, error) { return token, nil }),
		belfry.WithLabels(map[string]string{"zone": "far"}), belfry.WithNodeName("far"), belfry.WithLogger(slog.New(slog.DiscardHandler)))
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	clean := belfry.Handle(far, "cleanup", func(_ context.Context, run *belfry.Run, in cleanup) (report, error) {
		run.Log.Info("cleaning", "table", in.Table, "node", run.Node)
		if in.Table == "slow" {
			entered <- struct{}{}
			<-release
		}
		return report{in.Days * 10, in.Table}, nil
	})
	ctx, stopPlanner := running(planner)
	defer stopPlanner()
	farContext, stopFar := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- far.Run(farContext) }()

	id := eventually(func() (belfry.RunID, error) { return planner.Trigger(ctx, "nightly") })
	got, err := belfry.Result[report](ctx, planner, id)
	if err != nil || got != (report{300, "orders"}) {
		t.Errorf("the result is %+v, %v", got, err)
	}
	if text, err := planner.Output(ctx, id); err != nil || !strings.Contains(text, "cleaning table=orders node=far") {
		t.Errorf("the output is %q, %v", text, err)
	}
	if _, err := clean.Trigger(ctx, "nightly", cleanup{}); !errors.Is(err, belfry.ErrNoStore) {
		t.Errorf("a trigger without a store: %v", err)
	}

	// It drains: running attempts end, and their results are reported.
	slow, err := planner.Trigger(ctx, "nightly", belfry.Params(map[string]string{"table": "slow"}))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	stopFar()
	select {
	case err := <-ended:
		t.Fatalf("Run has not waited for its handler: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got, err := belfry.Result[report](ctx, planner, slow); err != nil || got != (report{300, "slow"}) {
		t.Errorf("the result of what ran at the stop is %+v, %v", got, err)
	}
}

func TestCheckAndRunReportConnectionMistakes(t *testing.T) {
	handled := func(s *belfry.Scheduler) *belfry.Scheduler {
		belfry.HandleFunc(s, "x", func(context.Context, *belfry.Run) error { return nil })
		return s
	}
	declared := handled(belfry.Connect("http://localhost:1", "t"))
	declared.Job("tick", belfry.Every(time.Second), belfry.Do("x", belfry.None{}))
	for _, c := range []struct {
		s    *belfry.Scheduler
		want string
	}{
		{handled(belfry.Connect("localhost:8420", "t")), `connect_test.go:`},
		{handled(belfry.Connect("localhost:8420", "t")), `"localhost:8420" is not the address of a server`},
		{handled(belfry.Connect("http://example.com", "t")), "has no TLS"},
		{handled(belfry.Connect("http://127.example.com", "t")), "has no TLS"},
		{belfry.Connect("http://localhost:1", "t"), "has no handlers"},
		{declared, "declares none"},
		{belfry.New(memory.Empty(), belfry.WithServers("http://localhost:1")), "are for Connect"},
	} {
		if err := c.s.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the mistake is %v and not %s", err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address, _, err := newServer(ctx, memory.New(memory.Options{}), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := handled(belfry.Connect(address, "belfry_wrong")).Run(ctx); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a wrong token: %v", err)
	}
	if err := handled(belfry.Connect(address, "")).Run(ctx); err == nil || !strings.Contains(err.Error(), "token: it is empty") {
		t.Errorf("no token: %v", err)
	}
}
