package host

import (
	"crypto/rand"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/memory"
)

func newID(t *testing.T) job.ID {
	t.Helper()
	var id job.ID
	_, _ = rand.Read(id[:])
	return id
}

func TestTheOutputOfAWorkerIsBoundedByTheServer(t *testing.T) {
	const limit = 10_000
	w := newWorkerOutput(limit)
	session, run, other := job.ID{1}, job.ID{2}, job.ID{3}
	chunk := func(run job.ID, attempt, seq, size int) store.OutputChunk {
		return store.OutputChunk{Run: run, Attempt: attempt, Seq: seq, Data: make([]byte, size)}
	}
	stored := 0
	for seq := range 100 {
		for _, c := range w.allowed(session, []store.OutputChunk{chunk(run, 1, seq, 1000)}) {
			stored += len(c.Data)
		}
	}
	if stored == 0 || stored > 2*limit {
		t.Errorf("%d bytes are stored of 100,000", stored)
	}
	for what, chunks := range map[string][]store.OutputChunk{
		"another run":          {chunk(other, 1, 0, 1000)},
		"another attempt":      {chunk(run, 2, 0, 1000)},
		"a chunk that is sent": {chunk(run, 2, 0, 1000)},
		"one of another node":  {chunk(job.ID{9}, 1, 5, 1000)},
	} {
		if got := w.allowed(session, chunks); len(got) != 1 {
			t.Errorf("%s is not stored", what)
		}
	}
	// Without data, chunks cost the store something too.
	many := 0
	for seq := range 10_000 {
		many += len(w.allowed(session, []store.OutputChunk{chunk(job.ID{4}, 1, seq, 0)}))
	}
	if many > 2*limit/chunkOverhead {
		t.Errorf("%d empty chunks are stored", many)
	}
	// A worker that writes much drops the middle, and stores the end.
	for seq := range 1000 {
		c := chunk(job.ID{5}, 1, seq, 1000)
		if seq > 8 {
			c.DropFrom, c.DropTo = 4, seq-4
		}
		if len(w.allowed(session, []store.OutputChunk{c})) != 1 {
			t.Fatalf("chunk %d of an output whose middle is dropped is not stored", seq)
		}
	}
	w.forget(session, func(job.ID) bool { return true })
	if len(w.of) > 0 {
		t.Errorf("counts are left: %v", w.of)
	}
}

func TestTheWorkersOfATokenAreBounded(t *testing.T) {
	now := time.Now()
	s := memory.New(memory.Options{Now: func() time.Time { return now }})
	workers := New(Config{Store: s, Tokens: auth.New(s, nil), Now: time.Now})
	who := service.Caller{Name: "edge", Role: store.RoleRemote, Token: store.TokenHash{1}}
	join := func(who service.Caller, session job.ID) error {
		_, err := workers.Join(t.Context(), who, wire.Join{Session: session, Node: "n", Machine: "m", Capacity: 1, Oldest: wire.Oldest, Newest: wire.Newest})
		return err
	}
	var last job.ID
	for range workerSessionsMax {
		if last = newID(t); join(who, last) != nil {
			t.Fatal("a worker of the first is refused")
		}
	}
	if err := join(who, newID(t)); err == nil || service.ErrorOf(err).Type != client.TypeTooMany {
		t.Errorf("one more worker: %v", err)
	}
	if err := join(who, last); err != nil {
		t.Errorf("a worker that repeats its request: %v", err)
	}
	if err := join(service.Caller{Name: "other", Role: store.RoleRemote, Token: store.TokenHash{2}}, newID(t)); err != nil {
		t.Errorf("a worker with another token: %v", err)
	}
}

func TestHandlersThatNoJobCanNameAreRefused(t *testing.T) {
	s := memory.New(memory.Options{Now: time.Now})
	workers := New(Config{Store: s, Tokens: auth.New(s, nil), Now: time.Now})
	who := service.Caller{Name: "edge", Role: store.RoleRemote, Token: store.TokenHash{1}}
	for _, c := range []struct {
		only bool
		name string
		ok   bool
	}{
		{true, "mail/send_1", true}, {true, "发邮件", false}, {true, "", false}, {true, strings.Repeat("x", 257), false}, {false, job.ContainerHandler, true},
	} {
		_, err := workers.Join(t.Context(), who, wire.Join{
			Session: newID(t), Node: "n", Machine: "m", Capacity: 1, Oldest: wire.Oldest, Newest: wire.Newest, Only: c.only, Handlers: []string{"good", c.name},
		})
		if (err == nil) != c.ok || err != nil && (len(service.ErrorOf(err).Errors) != 1 || service.ErrorOf(err).Errors[0].Path != "handlers[1]") {
			t.Errorf("a worker with the handler %q: %+v", c.name, err)
		}
	}
}

// forgotten panics at any call: every method of a nil interface does.
type forgotten struct{ Store }

func TestEveryMethodRefusesACallerWithoutRights(t *testing.T) {
	workers := reflect.ValueOf(&Workers{Config: Config{Store: forgotten{}}})
	for i := range workers.NumMethod() {
		method, name := workers.Method(i), workers.Type().Method(i).Name
		if name == "Run" { // the server itself calls it
			continue
		}
		arguments := []reflect.Value{reflect.ValueOf(t.Context())}
		for i := 1; i < method.Type().NumIn(); i++ {
			arguments = append(arguments, reflect.Zero(method.Type().In(i)))
		}
		results := method.Call(arguments)
		if err, _ := results[len(results)-1].Interface().(error); err == nil || service.ErrorOf(err).Type != client.TypeForbidden {
			t.Errorf("%s with no caller: %v", name, err)
		}
	}
}
