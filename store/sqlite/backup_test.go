package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestBackupIsASnapshotDuringWrites(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, filepath.Join(dir, "belfry.db"), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	written := make(chan struct{})
	for w := range 4 {
		writers.Go(func() {
			for i := w; ctx.Err() == nil; i += 4 {
				if _, err := store.PutOne(ctx, s, store.PutJob{Definition: benchJob(i, job.Policy{}), Actor: "ann"}); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				select {
				case written <- struct{}{}:
				default:
				}
			}
		})
	}
	backups := []string{filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")}
	for _, to := range backups {
		<-written
		if err := Backup(ctx, filepath.Join(dir, "belfry.db"), to); err != nil {
			t.Error(err)
		}
	}
	cancel()
	writers.Wait()
	before := 0
	for i, from := range backups {
		info, err := os.Stat(from)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info, err)
		}
		path := filepath.Join(dir, fmt.Sprint("restored-", i), "belfry.db")
		r, err := Restore(t.Context(), from, path, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		restored := openStore(t, path, Options{})
		for table, want := range map[string]int64{"jobs where live is not null": int64(r.Jobs), "revisions": int64(r.Jobs), "audit where action = 'job.create'": int64(r.Jobs)} {
			err := restored.read(t.Context(), func(c *conn) error {
				n, err := number(c, "select count(*) from "+table)
				if n != want {
					t.Errorf("%s: %d, want %d", table, n, want)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		if r.Jobs <= before {
			t.Errorf("backup %d has %d jobs, the one before %d", i, r.Jobs, before)
		}
		before = r.Jobs
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*part*"))
	more, _ := filepath.Glob(filepath.Join(dir, "*part*"))
	if err != nil || len(left)+len(more) != 0 {
		t.Errorf("left behind: %v %v %v", left, more, err)
	}
}

func TestActiveRunsDoNotRunAfterARestore(t *testing.T) {
	clock := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	now := func() time.Time { return clock }
	dir := t.TempDir()
	path := filepath.Join(dir, "belfry.db")
	s := openStore(t, path, Options{Now: now})
	ctx, ids := t.Context(), &tally{}
	session, err := s.Join(ctx, store.Session{ID: ids.next(), Node: "a", Machine: "m", DataDir: "d"})
	if err != nil {
		t.Fatal(err)
	}
	once := 1
	put := func(i int, change func(*job.Job)) *store.Job {
		t.Helper()
		d := benchJob(i, job.Policy{Overlap: job.OverlapQueue, Retry: &job.Retry{Attempts: &once}})
		change(d)
		j, err := store.PutOne(ctx, s, store.PutJob{Definition: d})
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	every := func(d *job.Job) { d.Schedule = job.Schedule{Cron: []string{"* * * * *"}} }
	main := put(1, every)
	leader := main.Definition.FullName()
	put(2, func(d *job.Job) {
		d.Schedule = job.Schedule{On: []job.Upstream{{Job: leader, Outcome: job.OnFinished}}}
	})
	chain := put(3, func(d *job.Job) { d.Schedule = job.Schedule{AfterEnd: job.Duration(time.Minute)} })
	paused := put(4, func(d *job.Job) { every(d); d.Paused = true })

	trigger := func(key string) job.ID {
		t.Helper()
		out, err := s.Trigger(ctx, []store.TriggerItem{{ID: ids.next(), Job: main.Definition.UID, Kind: job.RunByHand, Key: key, Session: session.ID}})
		if err != nil {
			t.Fatal(err)
		}
		return out[0].Run
	}
	running, waiting := trigger("one"), trigger("two")
	for _, run := range []job.ID{running, waiting} {
		if _, err := s.Claim(ctx, session.ID, []store.Attempt{{Run: run, Number: 1, Token: ids.next()}}); err != nil {
			t.Fatal(err)
		}
	}
	due := clock.Add(10 * time.Second)
	planned := ids.next()
	out, _, err := s.Plan(ctx, session.ID, []store.PlanItem{{
		Job: main.Definition.UID, Epoch: main.Definition.Epoch, From: main.Cursor, To: due,
		Runs: []store.NewRun{{ID: planned, Session: session.ID, Scheduled: due, Due: due}},
	}})
	if err != nil || out[0] != store.Planned {
		t.Fatal(out, err)
	}
	backup := filepath.Join(dir, "backup.db")
	if err := Backup(ctx, path, backup); err != nil {
		t.Fatal(err)
	}

	clock = clock.Add(time.Hour)
	elsewhere := filepath.Join(dir, "elsewhere", "belfry.db")
	r, err := Restore(ctx, backup, elsewhere, now)
	if err != nil {
		t.Fatal(err)
	}
	if r.Jobs != 4 || r.Ended != 4 { // including the first run of the chain
		t.Errorf("restored: %+v", r)
	}
	s = openStore(t, elsewhere, Options{Now: now})
	if sessions, err := s.Sessions(ctx); err != nil || len(sessions) != 0 {
		t.Errorf("sessions: %v %v", sessions, err)
	}
	active, err := s.ListActive(ctx, store.ActiveQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(active) != 1 || active[0].JobUID != chain.Definition.UID || !active[0].Due.Equal(clock.Add(time.Minute)) {
		t.Errorf("what will run is %+v, want the chain that begins anew", active)
	}
	for run, want := range map[job.ID]job.Outcome{running: job.OutcomeCancelled, waiting: job.OutcomeCancelled, planned: job.OutcomeWithdrawn} {
		records, err := s.AttemptsOf(ctx, run)
		if err != nil || len(records) != 1 || records[0].Attempt.Outcome != want || !strings.Contains(records[0].Attempt.Reason.String(), "the store was restored") {
			t.Errorf("run %s has ended as %+v, %v, want %s", run, records, err, want)
		}
	}
	if again := func() job.ID {
		out, err := s.Trigger(ctx, []store.TriggerItem{{ID: ids.next(), Job: main.Definition.UID, Kind: job.RunByHand, Key: "one"}})
		if err != nil {
			t.Fatal(err)
		}
		return out[0].Run
	}(); again != running {
		t.Error("a request that already exists the backup makes another run after it")
	}
	for _, was := range []*store.Job{main, chain, paused} {
		j, err := store.JobByUID(ctx, s, was.Definition.UID)
		if err != nil {
			t.Fatal(err)
		}
		if !j.Cursor.Equal(clock) || j.Definition.Epoch == was.Definition.Epoch || j.Definition.Version != was.Definition.Version ||
			j.Definition.Status.State != was.Definition.Status.State {
			t.Errorf("job %s: cursor %s, %+v", was.Definition.Name, j.Cursor, j.Definition)
		}
	}
	records, _, err := s.Audit(ctx, store.AuditQuery{Limit: 100})
	if err != nil || !slices.ContainsFunc(records, func(r store.AuditRecord) bool { return r.Action == "store.restore" && r.Actor == "restore" }) {
		t.Errorf("the audit has %+v, %v", records, err)
	}
}

func TestBackupsAndRestoresThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "belfry.db")
	s := openStore(t, path, Options{})
	ctx := t.Context()
	if _, err := store.PutOne(ctx, s, store.PutJob{Definition: benchJob(1, job.Policy{})}); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(dir, "good.db")
	if err := Backup(ctx, path, good); err != nil {
		t.Fatal(err)
	}
	if err := Backup(ctx, path, good); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a backup: %v", err)
	}
	if err := Backup(ctx, filepath.Join(dir, "none.db"), filepath.Join(dir, "x.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
	restore := func(from, to string) error {
		_, err := Restore(ctx, from, to, time.Now)
		return err
	}
	if err := restore(good, path); !errors.Is(err, ErrInUse) {
		t.Errorf("under a server: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := restore(good, path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a store: %v", err)
	}
	write := func(name string, change func([]byte) []byte) string {
		t.Helper()
		data, err := os.ReadFile(good)
		if err != nil {
			t.Fatal(err)
		}
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, change(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	newer := write("newer.db", func(b []byte) []byte { return b })
	c, err := openConn(newer, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.exec("insert into schema_versions (version, applied) values (999, 0)"), c.close()); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(dir, "target", "belfry.db")
	for name, want := range map[string]string{
		newer: "newer.db has schema version 999 and this belfry knows versions up to",
		write("text.db", func([]byte) []byte {
			return []byte("no database at all, but some text that is longer than a header of one, which has a hundred bytes")
		}): "not a database",
		write("empty.db", func([]byte) []byte { return nil }):                           "empty.db is not a store of belfry",
		write("torn.db", func(b []byte) []byte { clear(b[3*4096 : 9*4096]); return b }): "the store is damaged",
		filepath.Join(dir, "missing.db"):                                                "no such file",
	} {
		if err := restore(name, target); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", filepath.Base(name), err, want)
		}
		if name == newer {
			if err := Backup(ctx, name, filepath.Join(dir, "x.db")); err == nil || !strings.Contains(err.Error(), "a newer belfry has used it") {
				t.Errorf("a backup of a newer store: %v", err)
			}
		}
	}
	left, err := os.ReadDir(filepath.Dir(target))
	if err != nil || len(left) != 1 || left[0].Name() != "belfry.db-lock" {
		t.Errorf("left behind: %v, %v", left, err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Restore(cancelled, good, target, time.Now); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context: %v", err)
	}
	if err := restore(good, target); err != nil {
		t.Errorf("after all the failures: %v", err)
	}
}
