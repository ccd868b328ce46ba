package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// A full disk refuses new work, records past events in the space of the ballast, and recovers when
// there is space again.
func TestAFullDisk(t *testing.T) {
	dir := mounted(t, "size=24m")
	path := filepath.Join(dir, "belfry.db")
	clock := time.Now()
	s := openStore(t, path, Options{Now: func() time.Time { return clock }})
	ctx := t.Context()
	ids := &tally{}
	session, err := s.Join(ctx, store.Session{ID: ids.next(), Node: "a", Machine: "m", DataDir: "d"})
	if err != nil {
		t.Fatal(err)
	}
	j, err := store.PutOne(ctx, s, store.PutJob{Definition: benchJob(0, job.Policy{Overlap: job.OverlapAllow})})
	if err != nil {
		t.Fatal(err)
	}
	trigger := func() (store.Attempt, error) {
		a := store.Attempt{Run: ids.next(), Number: 1, Token: ids.next()}
		out, err := s.Trigger(ctx, []store.TriggerItem{{ID: a.Run, Job: j.Definition.UID, Kind: job.RunByHand, Session: session.ID}})
		if err == nil {
			err = out[0].Err
		}
		return a, err
	}
	var running []store.Attempt
	for range 50 {
		a, err := trigger()
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, a)
	}
	if _, err := s.Claim(ctx, session.ID, running); err != nil {
		t.Fatal(err)
	}

	filler := filepath.Join(dir, "filler")
	fillUp(t, filler)
	var full error
	for n := 0; full == nil; n++ {
		if n > 100_000 {
			t.Fatal("the disk does not get full")
		}
		_, full = trigger()
	}
	if !errors.Is(full, store.ErrNoSpace) {
		t.Fatalf("got %v, want that there is no space", full)
	}
	for range 3 {
		if _, err := trigger(); !errors.Is(err, store.ErrNoSpace) {
			t.Fatalf("got %v, want that there still is no space", err)
		}
	}
	if err := s.Renew(ctx, session.ID, store.Load{}); err != nil {
		t.Fatalf("renew on a full disk: %v", err)
	}
	var results []store.Result
	for _, a := range running {
		results = append(results, store.Result{Attempt: a, Outcome: job.OutcomeSucceeded})
	}
	outcomes, err := s.Finish(ctx, session.ID, results)
	if err != nil || !outcomes[0].Accepted {
		t.Fatalf("finish on a full disk: %v, %v", outcomes, err)
	}
	clock = clock.Add(time.Hour)
	for more := true; more; {
		if more, err = s.Expire(ctx, store.Retention{For: time.Minute}); err != nil {
			t.Fatalf("expire on a full disk: %v", err)
		}
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s.d.writer.ballast.tried = time.Time{} // as if a second had passed
	if _, err := trigger(); err != nil {
		t.Fatalf("with space again: %v", err)
	}
	if _, err := os.Stat(path + "-ballast"); err != nil {
		t.Errorf("the ballast does not exist again: %v", err)
	}
}

// The space of the ballast is for new writes, however long the log is: writing that back would take
// all of it, and leave no room in either file.
func TestAFullDiskWithALongLog(t *testing.T) {
	path := filepath.Join(mounted(t, "size=24m"), "belfry.db")
	clock := time.Now()
	s := openStore(t, path, Options{Now: func() time.Time { return clock }})
	ctx := t.Context()
	ids := &tally{}
	session, err := s.Join(ctx, store.Session{ID: ids.next(), Node: "a", Machine: "m", DataDir: "d"})
	if err != nil {
		t.Fatal(err)
	}
	grow := func() error {
		return s.AppendOutput(ctx, []store.OutputChunk{{Run: ids.next(), Attempt: 1, Data: make([]byte, 64<<10)}})
	}
	for err = nil; err == nil; {
		err = grow()
	}
	for range 10 * checkpointEvery { // many commits examine the log
		if err != nil && !errors.Is(err, store.ErrNoSpace) {
			t.Fatal(err)
		}
		clock = clock.Add(time.Second)
		// Results may fail until the space is released.
		begun := time.Now()
		for err = errors.New("not tried"); err != nil; err = s.Renew(ctx, session.ID, store.Load{}) {
			if time.Since(begun) > 2*time.Minute {
				t.Fatalf("renew on a full disk: %v", err)
			}
		}
		err = grow()
	}
}

// fillUp writes a file that takes all the remaining space.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size >= 1; size /= 16 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// mounted mounts a file system in memory until the end of the test.
func mounted(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAReadOnlyDirectory(t *testing.T) {
	dir := mounted(t, "size=24m")
	path := filepath.Join(dir, "belfry.db")
	if err := openStore(t, path, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	remount := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(syscall.MS_RDONLY)
	_, err := Open(t.Context(), path, Options{})
	if !errors.Is(err, store.ErrReadOnly) || !strings.Contains(err.Error(), path) {
		t.Fatalf("got %v, want that %s is read-only", err, path)
	}
	remount(0)
	openStore(t, path, Options{})
}
