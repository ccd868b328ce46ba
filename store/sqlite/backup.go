package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// Backup writes all of a database, as it is at one moment, into a file that must
// not exist yet. A server may have the database open, in this or in another
// process: it goes on, and its log grows until the backup is done. The file is
// whole when Backup returns nil, and not there otherwise.
func Backup(ctx context.Context, path, to string) error {
	if err := backup(ctx, path, to); err != nil {
		return fmt.Errorf("back up %s: %w", path, err)
	}
	return nil
}

func backup(ctx context.Context, path, to string) error {
	if _, err := os.Stat(path); err != nil {
		return err // SQLite would say less
	}
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s: %w", to, fs.ErrExist)
	}
	part, err := newPart(to)
	if err != nil {
		return err
	}
	c, err := openConn(path, false)
	if err == nil {
		err = errors.Join(copyInto(ctx, c, path, part), c.close())
	}
	if err == nil {
		err = publish(part, to)
	}
	return errors.Join(err, removed(part))
}

// newPart makes the file that becomes another when it is whole. It is for its owner
// alone, as the store is.
func newPart(of string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(of), filepath.Base(of)+".part-*") // 0600
	if err != nil {
		return "", fileError(err)
	}
	return f.Name(), f.Close()
}

func removed(part string) error {
	if err := os.Remove(part); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// copyInto copies what a connection sees at one moment into an empty file.
func copyInto(ctx context.Context, c *conn, path, to string) error {
	if err := known(c, path); err != nil {
		return err
	}
	err := interruptible(ctx, c, func() error { return c.stmt("vacuum into ?").bindText(to).exec() })
	if interrupted(err) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// publish gives a file that is whole its name, unless somebody else has taken it
// meanwhile, and sees to it that both are on disk.
func publish(part, to string) error {
	if err := syncFile(part); err != nil {
		return err
	}
	if err := os.Link(part, to); err != nil {
		return fileError(err)
	}
	return syncFile(filepath.Dir(to))
}

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return fileError(errors.Join(f.Sync(), f.Close()))
}

// Restored is what Restore has found.
type Restored struct {
	Jobs int
	// Ended are the runs that were planned or going on when the backup was made,
	// and will not run here.
	Ended int
	// Changed is when something was last changed in the backup, as far as runs
	// and jobs tell.
	Changed time.Time
}

const (
	restoreActor  = "restore"
	restoreReason = "the store was restored from a backup, and it may have run since the backup was made"
)

// Restore makes a store of a backup, where there is none: a path at which there is
// a database is refused, and so is one that a server holds.
//
// What fell due between the backup and now may have run where the backup is from.
// So nothing of it runs here: jobs go on from now, and what was planned or going on
// is ended. Each job begins a new epoch for it.
func Restore(ctx context.Context, from, path string, now func() time.Time) (Restored, error) {
	r, err := restore(ctx, from, path, now)
	return r, wrapped(err, "restore %s", from)
}

func restore(ctx context.Context, from, path string, now func() time.Time) (r Restored, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return r, fileError(err)
	}
	lock, err := lockFile(path + "-lock")
	if err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	defer func() { err = errors.Join(err, unlock(lock)) }()
	for _, name := range []string{path, path + "-wal"} {
		if _, err := os.Lstat(name); err == nil {
			return r, fmt.Errorf("%s: %w", name, fs.ErrExist)
		}
	}
	part, err := newPart(path)
	if err != nil {
		return r, err
	}
	defer func() {
		for _, tail := range []string{"", "-wal", "-shm", "-lock", "-ballast"} {
			err = errors.Join(err, removed(part+tail))
		}
	}()
	if err := copyFile(ctx, from, part); err != nil {
		return r, err
	}
	defaults, err := examine(ctx, from, part)
	if err != nil {
		return r, err
	}
	s, err := Open(ctx, part, Options{Now: now, Defaults: defaults})
	if err != nil {
		return r, err
	}
	err = s.goOnFromNow(ctx, &r)
	if err = errors.Join(err, s.Close()); err != nil {
		return r, err
	}
	return r, publish(part, path)
}

// copyFile copies a file, for as long as the context lasts.
func copyFile(ctx context.Context, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fileError(err)
	}
	_, err = io.Copy(out, readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return in.Read(p)
	}))
	return fileError(errors.Join(err, out.Close()))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// examine looks whether a copy is whole and one that this program knows, and
// returns the defaults that its jobs were filled in with.
func examine(ctx context.Context, from, part string) (defaults job.Defaults, err error) {
	c, err := openConn(part, false)
	if err != nil {
		return defaults, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := known(c, from); err != nil {
		return defaults, err
	}
	wrong := ""
	err = interruptible(ctx, c, func() error {
		q := c.stmt("pragma integrity_check(1)")
		for q.next() {
			wrong = q.text()
		}
		return q.err()
	})
	if err == nil && wrong != "ok" {
		err = fmt.Errorf("%w: %s", store.ErrDamaged, wrong)
	}
	if err != nil {
		return defaults, err
	}
	text := ""
	q := c.stmt("select value from settings where name = ?").bindText(defaultsName)
	for q.next() {
		text = q.text()
	}
	if err := q.err(); err != nil || text == "" {
		return defaults, err
	}
	return defaults, json.Unmarshal([]byte(text), &defaults)
}

// goOnFromNow ends what was planned or going on, and lets all jobs go on from now.
func (s *Store) goOnFromNow(ctx context.Context, r *Restored) error {
	var runs []store.Run
	var jobs []job.ID
	err := s.read(ctx, func(c *conn) (err error) {
		if runs, err = scanRuns(c.stmt("select " + activeColumns + " from active a order by a.due, a.id")); err != nil {
			return err
		}
		if jobs, err = ids(c.stmt("select uid from job_state where deleted = 0 and state <> ? order by uid").bindInt(columns.JobStates.Of(job.JobCompleted))); err != nil {
			return err
		}
		all, err := number(c, "select count(*) from job_state where deleted = 0")
		if err != nil {
			return err
		}
		changed, err := number(c, "select max((select coalesce(max(ended), 0) from history), (select coalesce(max(time), 0) from audit))")
		r.Jobs, r.Changed = int(all), columns.FromNanos(changed)
		return err
	})
	if err != nil {
		return err
	}
	// A new epoch first: what then ends starts nothing after it, and an occurrence
	// that is still to come is planned again.
	for rest := jobs; len(rest) > 0; rest = rest[min(len(rest), store.MaxBatch):] {
		batch := rest[:min(len(rest), store.MaxBatch)]
		if err := s.write(ctx, func(t *tx) error { return t.rescheduleJobs(batch) }); err != nil {
			return err
		}
	}
	for rest := runs; len(rest) > 0; rest = rest[min(len(rest), store.MaxBatch):] {
		batch := rest[:min(len(rest), store.MaxBatch)]
		if err := s.write(ctx, func(t *tx) error { return t.endRestored(batch) }); err != nil {
			return err
		}
	}
	r.Ended = len(runs)
	return s.write(ctx, func(t *tx) error {
		if err := t.stmt("delete from sessions").exec(); err != nil {
			return err
		}
		t.memory.forget()
		return t.insertAudit(store.AuditRecord{
			Time: t.now, Actor: restoreActor, Action: "store.restore", Object: "store", Detail: fmt.Sprintf("%d runs were ended", r.Ended),
		})
	})
}

// rescheduleJobs begins a new epoch for jobs.
func (t *tx) rescheduleJobs(list []job.ID) error {
	return t.decide(len(list), func(st *step) error {
		for _, uid := range list {
			l, err := st.job(uid)
			if err != nil {
				return err
			}
			if err := st.time(l.jobRow, ""); err != nil {
				return err
			}
			if l.Policy.MaxRuns > 0 {
				if err := st.runsOf(uid); err != nil {
					return err
				}
			}
			if err := st.reschedule(l); err != nil {
				return err
			}
		}
		return nil
	})
}

// endRestored ends runs that a backup has.
func (t *tx) endRestored(list []store.Run) error {
	return t.decide(len(list), func(st *step) error {
		for i := range list {
			if _, err := st.run(list[i].ID, ""); err != nil {
				return err
			}
		}
		for i := range list {
			r := &list[i]
			if r.State == job.StateRunning {
				st.b.Finish(store.Result{
					Attempt: store.Attempt{Run: r.ID, Number: r.Attempt, Token: r.Token}, Started: r.Claimed, Ended: t.now,
					Outcome: job.OutcomeCancelled, Reason: "by " + restoreActor + ": " + restoreReason,
				})
			} else if !st.b.Settle(r.ID) {
				st.b.Cancel(r.ID, restoreActor, restoreReason)
			}
		}
		return nil
	})
}
