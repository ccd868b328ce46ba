package remote_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/node"
	"github.com/belfry-cron/belfry/internal/remote"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ledger takes results, or refuses them.
type ledger struct {
	got     []store.Result
	refuses func(results []store.Result) error
}

func (l *ledger) finish(_ context.Context, _ job.ID, results []store.Result) ([]store.FinishOutcome, error) {
	if l.refuses != nil {
		if err := l.refuses(results); err != nil {
			return nil, err
		}
	}
	l.got = append(l.got, results...)
	return make([]store.FinishOutcome, len(results)), nil
}

func openSpool(t *testing.T, dir string) (*remote.Spool, *strings.Builder) {
	t.Helper()
	log := &strings.Builder{}
	s, err := remote.OpenSpool(dir, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, log
}

func someResult(t *testing.T, output int) *store.Result {
	t.Helper()
	r := &store.Result{
		Attempt: store.Attempt{Job: newID(t), Run: newID(t), Number: 1, Token: newID(t)}, Started: time.Now().UTC().Round(0), Ended: time.Now().UTC().Round(0),
		Outcome: job.OutcomeSucceeded, Value: []byte("1"), OutputBytes: int64(output),
	}
	if output > 0 {
		r.Output = []store.OutputChunk{{Run: r.Run, Attempt: 1, Bytes: output, Time: r.Started, Data: make([]byte, output)}}
	}
	return r
}

func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestUnreportedResultsSurviveTheProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, _ := openSpool(t, dir)
	if _, err := remote.OpenSpool(dir, nil); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("it is opened twice: %v", err)
	}
	var want []store.Result
	var group sync.WaitGroup
	for i := range 100 {
		r := someResult(t, 10)
		if i%2 == 0 {
			want = append(want, *r)
		}
		group.Go(func() {
			s.Keep(r)
			if i%2 == 1 {
				s.Forget(r.Token)
			}
		})
	}
	group.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next, _ := openSpool(t, dir)
	l := ledger{refuses: func([]store.Result) error { return store.ErrAway }}
	if _, err := next.Deliver(t.Context(), newID(t), l.finish); !errors.Is(err, store.ErrAway) {
		t.Errorf("delivered to a server that is away: %v", err)
	}
	l = ledger{}
	if _, err := next.Deliver(t.Context(), newID(t), l.finish); err != nil {
		t.Fatal(err)
	}
	got := map[job.ID]store.Result{}
	for _, r := range l.got {
		got[r.Token] = r
	}
	for _, r := range want {
		if !reflect.DeepEqual(got[r.Token], r) {
			t.Fatalf("delivered is\n%+v\nand not\n%+v", got[r.Token], r)
		}
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestSpoolIsEmptyAfterAllReports(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, _ := openSpool(t, dir)
	r := someResult(t, 0)
	s.Keep(r)
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("the files are %v", got)
	}
	s.Forget(r.Token)
	s.Forget(r.Token)
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("the files are %v", got)
	}
}

func TestDamagedSpoolFilesAreSetAside(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, log := openSpool(t, dir)
	good := someResult(t, 5)
	s.Keep(good)
	name := files(t, dir)[0]
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{
		name:                              string(text) + "\x00\x00\x00\n" + string(text[:len(text)/2]), // cut off by a kill
		filepath.Join(dir, "0empty.json"): "",
		filepath.Join(dir, "1null.json"):  "null\n{}\n",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var l ledger
	if _, err := s.Deliver(t.Context(), newID(t), l.finish); err != nil {
		t.Fatal(err)
	}
	if len(l.got) != 1 || l.got[0].Token != good.Token {
		t.Errorf("delivered are %+v", l.got)
	}
	aside, err := os.ReadDir(filepath.Join(dir, "damaged"))
	if err != nil || len(aside) != 3 || len(files(t, dir)) != 0 || !strings.Contains(log.String(), "is damaged") {
		t.Errorf("%d files are set aside and %v left, %v:\n%s", len(aside), files(t, dir), err, log)
	}
}

func TestPermanentlyRefusedResultBlocksNoOther(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, log := openSpool(t, dir)
	bad := someResult(t, 0)
	results := []*store.Result{someResult(t, 0), bad, someResult(t, 0)}
	for _, r := range results {
		s.Keep(r)
	}
	l := ledger{refuses: func(results []store.Result) error {
		for i := range results {
			if results[i].Token == bad.Token {
				return &remote.RefusedError{Problem: client.Problem{Type: client.TypeInvalid}}
			}
		}
		return nil
	}}
	if _, err := s.Deliver(t.Context(), newID(t), l.finish); err != nil {
		t.Fatal(err)
	}
	if len(l.got) != 2 || !strings.Contains(log.String(), "it is given up") || !strings.Contains(log.String(), bad.Run.String()) {
		t.Errorf("delivered are %d:\n%s", len(l.got), log)
	}
	// A token that is refused says nothing about the results.
	s.Keep(bad)
	l = ledger{refuses: func([]store.Result) error {
		return &remote.RefusedError{Problem: client.Problem{Type: client.TypeUnauthenticated}}
	}}
	if _, err := s.Deliver(t.Context(), newID(t), l.finish); err == nil || len(files(t, dir)) != 1 {
		t.Errorf("with a wrong token %v are left: %v", files(t, dir), err)
	}
}

func TestFullSpoolKeepsResultsWithoutOutput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, log := openSpool(t, dir)
	remote.SetSpoolMax(s, 10_000)
	for range 5 {
		s.Keep(someResult(t, 5000))
	}
	var l ledger
	if _, err := s.Deliver(t.Context(), newID(t), l.finish); err != nil {
		t.Fatal(err)
	}
	with := 0
	for i := range l.got {
		with += len(l.got[i].Output)
	}
	if len(l.got) != 5 || with != 1 || strings.Count(log.String(), "the spool is full") != 1 {
		t.Errorf("of %d results %d have their output:\n%s", len(l.got), with, log)
	}
}

// ending is an attempt that a test ends.
type ending struct{ began, end chan struct{} }

// Run implements executor.Executor.
func (e ending) Run(_ context.Context, a executor.Attempt, out executor.Output) executor.Result {
	if err := a.Start(); err != nil {
		return executor.Result{Unstarted: true}
	}
	e.began <- struct{}{}
	<-e.end
	fmt.Fprintln(out.Stdout, "done")
	return executor.Result{Outcome: job.OutcomeSucceeded}
}

// An attempt that ends in an outage is reported by the next process, although that begins after
// others took the attempt for lost.
func TestNextProcessReportsResultsOfAnOutage(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late=", late), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "spool")
			synctest.Test(t, func(t *testing.T) { outage(t, dir, late) })
		})
	}
}

func outage(t *testing.T, dir string, late bool) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	n := newNetwork()
	n.servers["a"] = w.server(ctx, "a")
	j := w.apply(`{name: long, schedule: {cron: "0 0 1 1 *"}, run: {shell: 'true'}, policy: {overlap: allow, lost_after: 40s}}`)
	boot := func() time.Duration { return time.Since(w.boot) }
	quiet := slog.New(slog.DiscardHandler)
	upkeep, err := node.New(node.Config{Session: store.Session{Node: "server", Machine: "s", DataDir: "/", Roles: []string{store.RolePlanner, store.RoleAPI}}, Boot: boot, Log: quiet}.On(w.store))
	if err != nil {
		t.Fatal(err)
	}
	var nodes sync.WaitGroup
	nodes.Go(func() { _ = upkeep.Run(ctx) })
	secret := w.grant("edge", "")
	e := ending{make(chan struct{}, 1), make(chan struct{})}
	work := func() (stop func()) {
		spool, err := remote.OpenSpool(dir, quiet)
		if err != nil {
			t.Fatal(err)
		}
		c := connect(t, n, secret, "http://a")
		far, err := node.New(node.Config{
			Members: c, Work: c, Spool: spool, Boot: boot, Log: quiet, Capacity: 20, DrainTimeout: time.Second,
			Session:   store.Session{Node: "far", Machine: "m", DataDir: "/", Roles: []string{store.RoleWorker}, Capacity: 20},
			Executors: func(*job.Job) executor.Executor { return e },
		})
		if err != nil {
			t.Fatal(err)
		}
		working, end := context.WithCancel(ctx)
		var over sync.WaitGroup
		over.Go(func() { _ = c.Work(working, far.Run) })
		return func() { end(); over.Wait(); _ = spool.Close() }
	}
	stop := work()
	time.Sleep(2 * time.Second)
	run := w.trigger(j, job.ID{})
	<-e.began
	n.setDown("a", true)
	time.Sleep(time.Second)
	close(e.end)
	time.Sleep(time.Second)
	stop()
	if late {
		time.Sleep(2 * time.Minute)
	}
	n.setDown("a", false)
	stop = work()
	time.Sleep(10 * time.Second)
	stop()
	cancel()
	nodes.Wait()
	w.over.Wait()

	ctx = context.WithoutCancel(ctx)
	records, _, err := w.store.Attempts(ctx, store.HistoryQuery{Job: j.Definition.UID, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 1 || records[0].Run.ID != run || records[0].Attempt.Outcome != job.OutcomeSucceeded || records[0].Replaces != late {
		t.Fatalf("the records are %+v", records)
	}
	chunks, err := w.store.Output(ctx, run, 1, 0, 10)
	if err != nil || len(chunks) != 1 || !strings.Contains(string(chunks[0].Data), "done") {
		t.Errorf("the output is %v, %v", chunks, err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}
