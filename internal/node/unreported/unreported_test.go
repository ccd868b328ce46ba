package unreported_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/node/unreported"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ledger accepts results or refuses them.
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

var errRefused = errors.New("refused for ever")

func openSpool(t *testing.T, dir string) (*unreported.Spool, *strings.Builder) {
	t.Helper()
	log := &strings.Builder{}
	s, err := unreported.Open(t.Context(), unreported.Config{
		Dir: dir, IsRefused: func(err error) bool { return errors.Is(err, errRefused) }, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
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
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := unreported.Open(over, unreported.Config{Dir: dir}); !errors.Is(err, unreported.ErrInUse) {
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
	killed := filepath.Join(t.TempDir(), "spool")
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil { // as a process leaves it that is killed now
		t.Fatal(err)
	}
	if err := os.Chmod(killed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, killed} {
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
	later := someResult(t, 0)
	s.Keep(later)
	s.Forget(r.Token)
	s.Forget(r.Token)
	s.Forget(later.Token)
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("the files are %v", got)
	} else if text, err := os.ReadFile(got[0]); err != nil || len(text) != 0 {
		t.Errorf("the file has %q, %v", text, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("the files are %v", got)
	}
}

// A result that the store does not take must not keep the later ones of a whole night on disk.
func TestOneUnreportedResultKeepsOneFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, _ := openSpool(t, dir)
	const output, results = 100 << 10, 50
	for i := range results {
		r := someResult(t, output)
		s.Keep(r)
		if i > 0 {
			s.Forget(r.Token)
		}
	}
	left := files(t, dir)
	if len(left) != 2 {
		t.Errorf("left are %v, one with the first result and the current one", left)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next, _ := openSpool(t, dir)
	var l ledger
	if _, err := next.Deliver(t.Context(), newID(t), l.finish); err != nil {
		t.Fatal(err)
	}
	if most := 1<<20/output + 3; len(l.got) == 0 || len(l.got) > 2*most || len(files(t, dir)) != 0 {
		t.Errorf("delivered are %d results, at most %d; left %v", len(l.got), most, files(t, dir))
	}
}

// An end that kills the process finds an empty file, which is no sign of damage.
func TestEmptySpoolFileIsNoDamage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, log := openSpool(t, dir)
	r := someResult(t, 0)
	s.Keep(r)
	s.Forget(r.Token)
	var l ledger
	if _, err := s.Deliver(t.Context(), newID(t), l.finish); err != nil || len(l.got) != 0 || len(files(t, dir)) != 0 || log.Len() != 0 {
		t.Errorf("delivered are %+v, left %v, %v:\n%s", l.got, files(t, dir), err, log)
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
		name:                             string(text) + "\x00\x00\x00\n" + string(text[:len(text)/2]), // cut off by a kill
		filepath.Join(dir, "0zero.json"): "\x00\x00",
		filepath.Join(dir, "1null.json"): "null\n{}\n",
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
				return errRefused
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
	// A refused token does not affect other results.
	s.Keep(bad)
	l = ledger{refuses: func([]store.Result) error {
		return errors.New("the token is refused")
	}}
	if _, err := s.Deliver(t.Context(), newID(t), l.finish); err == nil || len(files(t, dir)) != 1 {
		t.Errorf("with a wrong token %v are left: %v", files(t, dir), err)
	}
}

func TestFullSpoolKeepsResultsWithoutOutput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, log := openSpool(t, dir)
	unreported.SetSpoolMax(s, 10_000)
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

func newID(t *testing.T) job.ID {
	t.Helper()
	id, err := job.NewID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Results that could not be written, as on a full disk, are written with the next result or at the
// end.
func TestUnwrittenResultsAreWrittenLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, log := openSpool(t, dir)
	first, second, third := someResult(t, 0), someResult(t, 0), someResult(t, 0)
	full := func(r *store.Result) string { return filepath.Join(dir, r.Token.String()+".json") }
	block := func(r *store.Result) { // puts a directory in place of its file
		t.Helper()
		if err := os.Mkdir(full(r), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	unblock := func(r *store.Result) {
		t.Helper()
		if err := os.Remove(full(r)); err != nil {
			t.Fatal(err)
		}
	}
	block(first)
	s.Keep(first)
	if !strings.Contains(log.String(), "cannot write results to the spool") {
		t.Errorf("the log does not say that results are not written:\n%s", log)
	}
	unblock(first)
	s.Keep(second)
	unreported.NewFile(s)
	block(third)
	s.Keep(third)
	unblock(third)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next, _ := openSpool(t, dir)
	var l ledger
	if _, err := next.Deliver(t.Context(), newID(t), l.finish); err != nil {
		t.Fatal(err)
	}
	if len(l.got) != 3 || strings.Count(log.String(), "results are written to the spool again") != 2 {
		t.Errorf("delivered are %d of 3 results:\n%s", len(l.got), log)
	}
}

// A file of another user is no result of this node: it is not sent in its name.
func TestForeignFilesAreNotDelivered(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, log := openSpool(t, dir)
	s.Keep(someResult(t, 0))
	name := files(t, dir)[0]
	elsewhere := filepath.Join(t.TempDir(), "theirs")
	if err := os.Rename(name, elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, name); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // only root can create a file of another user
		s.Keep(someResult(t, 0))
		for _, file := range files(t, dir) {
			if file != name {
				if err := os.Chown(file, 1, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	var l ledger
	if _, err := s.Deliver(t.Context(), newID(t), l.finish); err != nil {
		t.Fatal(err)
	}
	if len(l.got) != 0 || len(files(t, dir)) != 0 || !strings.Contains(log.String(), "belongs to another user") {
		t.Errorf("delivered are %+v, left %v:\n%s", l.got, files(t, dir), log)
	}
}

// A result about which the store is undecided stays for the next session.
func TestUndecidedResultsStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s, _ := openSpool(t, dir)
	r := someResult(t, 0)
	s.Keep(r)
	undecided := true
	finish := func(context.Context, job.ID, []store.Result) ([]store.FinishOutcome, error) {
		return []store.FinishOutcome{{Undecided: undecided}}, nil
	}
	if _, err := s.Deliver(t.Context(), newID(t), finish); err != nil || len(files(t, dir)) != 1 {
		t.Errorf("an undecided result leaves %v, %v", files(t, dir), err)
	}
	undecided = false
	if _, err := s.Deliver(t.Context(), newID(t), finish); err != nil || len(files(t, dir)) != 0 {
		t.Errorf("a decided result leaves %v, %v", files(t, dir), err)
	}
}
