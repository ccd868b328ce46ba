package httpexec_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/belfry-cron/belfry/executor"
	httpexec "github.com/belfry-cron/belfry/executor/http"
	"github.com/belfry-cron/belfry/job"
)

// calling returns an attempt with callback, and its handovers.
func calling(h job.HTTP) (executor.Attempt, *[]executor.Handover) {
	h.Callback = true
	a := attempt(h)
	var list []executor.Handover
	a.HandOver = func(_ context.Context, given executor.Handover) (int64, error) {
		list = append(list, given)
		return 17, nil
	}
	return a, &list
}

var withCallbacks = httpexec.Config{Loopback: true, CallbackURL: "https://belfry.example/"}

func TestARequestWithCallbackIsHandedOverBeforeItIsSent(t *testing.T) {
	var got http.Header
	var method string
	var before int
	var handed *[]executor.Handover
	s := server(t, "", func(w http.ResponseWriter, r *http.Request) {
		got, method, before = r.Header, r.Method, len(*handed)
		w.WriteHeader(http.StatusAccepted)
	})
	e := newExecutor(t, withCallbacks)
	a, list := calling(job.HTTP{URL: s.URL + "/work?key=secret"})
	handed = list
	r, w := run(t, e, a)
	if !r.HandedOver || r.Outcome != "" || w.stdout.Len() != 0 {
		t.Errorf("the result is %+v, the output %q", r, w.stdout.String())
	}
	if before != 1 || len(*handed) != 1 || method != "POST" {
		t.Fatalf("%d handovers before the %s, %d in all", before, method, len(*handed))
	}
	hash := sha256.Sum256([]byte(got.Get("Belfry-Callback-Secret")))
	want := executor.Handover{Kind: "http", To: "POST " + s.URL + "/work", About: hex.EncodeToString(hash[:])}
	if (*handed)[0] != want || got.Get("Belfry-Callback") != "https://belfry.example/api/v1/callbacks/17" || len(got.Get("Belfry-Callback-Secret")) < 40 {
		t.Errorf("handed over: %+v with the headers %v", (*handed)[0], got)
	}
}

func TestOnlyAcceptedKeepsACallbackRequestOpen(t *testing.T) {
	for status, want := range map[int]job.Outcome{200: job.OutcomeSucceeded, 500: job.OutcomeFailed, 307: job.OutcomeFailed} {
		calls := 0
		s := server(t, "", func(w http.ResponseWriter, r *http.Request) {
			calls++
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		})
		a, _ := calling(job.HTTP{URL: s.URL})
		if r, _ := run(t, newExecutor(t, withCallbacks), a); r.Outcome != want || r.HandedOver || calls != 1 {
			t.Errorf("status %d: %+v after %d requests", status, r, calls)
		}
	}
}

// A request that may have arrived is neither repeated nor ended; without a connection it did not
// arrive.
func TestUncertainCallbackRequestIsHandedOver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var taken atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			taken.Add(1)
			_, _ = c.Read(make([]byte, 4096))
			c.Close() // without an answer
		}
	}()
	e := newExecutor(t, withCallbacks)
	a, _ := calling(job.HTTP{URL: "http://" + l.Addr().String(), Body: "work"})
	if r, _ := run(t, e, a); !r.HandedOver || taken.Load() != 1 {
		t.Errorf("broken off: %+v after %d connections", r, taken.Load())
	}
	l.Close()
	a, _ = calling(job.HTTP{URL: "http://" + l.Addr().String()})
	if r, _ := run(t, e, a); r.HandedOver || r.Outcome != job.OutcomeFailed || !strings.Contains(r.Reason.String(), "refused") {
		t.Errorf("no connection: %+v", r)
	}
}

func TestARequestWithCallbackIsNotSentWithoutItsHandover(t *testing.T) {
	calls := 0
	s := server(t, "", func(http.ResponseWriter, *http.Request) { calls++ })
	a, _ := calling(job.HTTP{URL: s.URL})
	a.HandOver = func(context.Context, executor.Handover) (int64, error) { return 0, errors.New("the store is away") }
	if r, _ := run(t, newExecutor(t, withCallbacks), a); !r.Unstarted || r.Reason.String() != "the store is away" || calls != 0 {
		t.Errorf("without a handover: %+v after %d requests", r, calls)
	}
	a, handed := calling(job.HTTP{URL: s.URL})
	r, _ := run(t, newExecutor(t, httpexec.Config{Loopback: true}), a)
	wantFailure(t, r, "http.callback_url")
	if calls != 0 || len(*handed) != 0 {
		t.Errorf("without an address to report to: %d requests, handed over %v", calls, *handed)
	}
}
