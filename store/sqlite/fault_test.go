package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// writerEnv makes the test binary a process that writes into a database until it is killed, and
// prints what was acknowledged.
const writerEnv = "BELFRY_SQLITE_TEST_WRITER"

func writeUntilKilled(path string) error {
	ctx := context.Background()
	s, err := Open(ctx, path, Options{LookAhead: time.Hour})
	if err != nil {
		return err
	}
	ids := &tally{}
	session, err := s.Join(ctx, store.Session{ID: ids.next(), Node: "a", Machine: "m", DataDir: "d"})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
		out.Flush()
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			j, err := store.PutOne(ctx, s, store.PutJob{Definition: benchJob(g, job.Policy{Overlap: job.OverlapAllow}), Actor: "test"})
			cursor := time.Time{}
			if err == nil {
				cursor = j.Cursor
			}
			for err == nil {
				to := cursor.Add(time.Microsecond)
				a := store.Attempt{Run: ids.next(), Number: 1, Token: ids.next()}
				item := store.PlanItem{
					Job: j.Definition.UID, Epoch: 1, From: cursor, To: to,
					Runs: []store.NewRun{{ID: a.Run, Session: session.ID, Scheduled: to, Due: to}},
				}
				if _, _, err = s.Plan(ctx, session.ID, []store.PlanItem{item}); err != nil {
					break
				}
				cursor = to
				say("planned %s", a.Run)
				if _, err = s.Claim(ctx, session.ID, []store.Attempt{a}); err != nil {
					break
				}
				say("claimed %s", a.Run)
				result := store.Result{
					Attempt: a, Outcome: job.OutcomeSucceeded, OutputBytes: 5,
					Output: []store.OutputChunk{{Run: a.Run, Attempt: 1, Bytes: 5, Data: []byte("hello")}},
				}
				if _, err = s.Finish(ctx, session.ID, []store.Result{result}); err == nil {
					say("finished %s", a.Run)
				}
			}
			say("error %v", err)
		})
	}
	wg.Wait()
	return errors.New("the writers have ended")
}

// Writes acknowledged before a kill -9 are complete afterwards.
func TestAcknowledgedWritesSurviveAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	states := map[string]string{} // last acknowledged states of runs
	for _, writes := range []int{1, 400, 3000} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerEnv+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			what, run, _ := strings.Cut(lines.Text(), " ")
			if what == "error" {
				t.Fatal(lines.Text())
			}
			states[run] = what
			if n == writes {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait() // it was killed

		s := openStore(t, path, Options{LookAhead: time.Hour})
		for text, state := range states {
			run, err := job.ParseID(text)
			if err != nil {
				t.Fatal(err)
			}
			checkRun(t, s, run, state)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkRun checks that a run has reached at least its acknowledged state, and is in one place only.
func checkRun(t *testing.T, s *Store, id job.ID, state string) {
	t.Helper()
	r, err := store.ActiveRun(t.Context(), s, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	active := err == nil
	records, err := s.AttemptsOf(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	output, err := s.Output(t.Context(), id, 1, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if active == (len(records) == 1) || len(records) != len(output) {
		t.Fatalf("run %s, %s: active %v, %d records, %d chunks of output", id, state, active, len(records), len(output))
	}
	if state == "finished" && active || state == "claimed" && active && r.State != job.StateRunning {
		t.Fatalf("run %s was %s and is %s", id, state, r.State)
	}
}

func TestASecondProcessIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	openStore(t, path, Options{})
	_, err := Open(t.Context(), path, Options{})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) || !strings.Contains(err.Error(), path) {
		t.Fatalf("got %v, want that process %d has %s", err, os.Getpid(), path)
	}
}

func TestOpenNamesADamagedFileAndTheWayOut(t *testing.T) {
	const page = 4096
	cases := []struct {
		name   string
		damage func(t *testing.T, path string)
	}{
		{"it is no database", func(t *testing.T, path string) {
			overwrite(t, path, 0, []byte("this is a text and not a database"))
		}},
		{"its end is cut off", func(t *testing.T, path string) {
			if err := os.Truncate(path, 3*page); err != nil {
				t.Fatal(err)
			}
		}},
		{"it was emptied", func(t *testing.T, path string) {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
		}},
		{"a page was overwritten before an unclean end", func(t *testing.T, path string) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			for n := int64(2); n < info.Size()/page; n++ {
				overwrite(t, path, n*page, []byte(strings.Repeat("damage ", 300)))
			}
			// A crash may also leave an empty log.
			if err := os.WriteFile(path+"-wal", make([]byte, 32), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "belfry.db")
			s := openStore(t, path, Options{})
			for i := range 20 {
				if _, err := store.PutOne(t.Context(), s, store.PutJob{Definition: benchJob(i, job.Policy{})}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			c.damage(t, path)
			_, err := Open(t.Context(), path, Options{})
			if !errors.Is(err, store.ErrDamaged) {
				t.Fatalf("got %v, want that it is damaged", err)
			}
			for _, part := range []string{path, "backup", ".recover", "move it"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
			// The lock was released.
			if lock, err := lockFile(path + "-lock"); err != nil {
				t.Error(err)
			} else {
				_ = lock.Close()
			}
		})
	}
}

func overwrite(t *testing.T, path string, at int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(data, at)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	if err := openStore(t, path, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	c, err := openConn(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.exec("insert into schema_versions (version, applied) values (99, 0)"), c.close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), path, Options{})
	if err == nil || !strings.Contains(err.Error(), "schema version 99") || !strings.Contains(err.Error(), "newer belfry") {
		t.Fatalf("got %v", err)
	}
}

func TestADatabaseOfAnotherProgramIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.db")
	c, err := openConn(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.exec("create table mine (a)"), c.close()); err != nil {
		t.Fatal(err)
	}
	if _, err = Open(t.Context(), path, Options{}); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Fatalf("got %v", err)
	}
}

// A database of the first version is upgraded, and keeps its content.
func TestTheSchemaOfVersion1IsBroughtForward(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	list, err := scripts()
	if err != nil {
		t.Fatal(err)
	}
	step := func(scripts []string) {
		t.Helper()
		c, err := openConn(path, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(migrate(c, path, scripts, time.Unix(0, 0)), c.close()); err != nil {
			t.Fatal(err)
		}
	}
	step(list[:1])
	c, err := openConn(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.exec("insert into audit (time, actor, action, object, version, detail, changes) values (1, 'ann', 'job.create', 'default/a', 1, '', '')"), c.close()); err != nil {
		t.Fatal(err)
	}
	// A failed upgrade is rolled back as a whole, and the next start repeats it.
	c, err = openConn(path, false)
	if err != nil {
		t.Fatal(err)
	}
	broken := append(list[:len(list):len(list)], "create table extra (a); insert into nowhere values (1)")
	err = migrate(c, path, broken, time.Unix(0, 0))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("version %d", len(broken))) {
		t.Fatalf("got %v", err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	step(append(list[:len(list):len(list)], "create table extra (a)"))

	c, err = openConn(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for query, want := range map[string]int64{
		"select max(version) from schema_versions":    int64(len(list)) + 1,
		"select count(*) from audit":                  1,
		"select count(*) from extra":                  0,
		"select count(*) from pragma_integrity_check": 1,
	} {
		if got, err := number(c, query); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", query, got, err, want)
		}
	}
}

func TestAFileThatMayNotGrowIsFull(t *testing.T) {
	s, err := open(t.Context(), filepath.Join(t.TempDir(), "belfry.db"), Options{}, 150)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var last *store.Job
	n := 0
	for ; err == nil; n++ {
		var j *store.Job
		if j, err = store.PutOne(t.Context(), s, store.PutJob{Definition: benchJob(n, job.Policy{})}); err == nil {
			last = j
		}
	}
	if !errors.Is(err, store.ErrNoSpace) || n < 10 {
		t.Fatalf("after %d jobs: %v", n, err)
	}
	// Refused calls left no trace, and the rest is there.
	list, _, err := s.ListJobs(t.Context(), store.JobQuery{Limit: 10_000})
	if err != nil || len(list) != n-1 || list[n-2].Definition.UID != last.Definition.UID {
		t.Fatalf("%d jobs are there of %d, %v", len(list), n-1, err)
	}
}

func TestTheFilesOfAStoreAreForTheirOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(context.Background(), filepath.Join(dir, "b.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 3 {
		t.Fatalf("%d files: %v", len(entries), err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %s", e.Name(), info.Mode())
		}
	}
}
