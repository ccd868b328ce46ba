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
	"github.com/belfry-cron/belfry/store/internal/sqldb"
)

// Backup writes a snapshot of a database into a new file. A server may have the database open, in
// this or another process: it keeps running, and its log grows until the backup is done. The file
// is complete when Backup returns nil, and does not exist otherwise.
func Backup(ctx context.Context, path, to string) error {
	if err := backup(ctx, path, to); err != nil {
		return fmt.Errorf("back up %s: %w", path, err)
	}
	return nil
}

func backup(ctx context.Context, path, to string) error {
	if _, err := os.Stat(path); err != nil {
		return err // better than SQLite's error
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

// copyInto copies the state that a connection sees at one moment into an empty file.
func copyInto(ctx context.Context, c *conn, path, to string) error {
	if err := known(c, path); err != nil {
		return err
	}
	release := interruptible(ctx, c)
	err := c.stmt("vacuum into ?").bindText(to).exec()
	release()
	if interrupted(err) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// publish renames a complete file to its final name, unless another process has taken that name,
// and syncs both to disk.
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

// Restored is the result of [Restore].
type Restored = sqldb.Restored

// Restore makes a store from a backup at a new path: it refuses the path of an existing database,
// or of a running server.
//
// Occurrences since the backup may have run at its origin, so none of them run here: jobs continue
// from now in a new epoch, and planned and running runs are ended.
func Restore(ctx context.Context, from, path string, now func() time.Time) (Restored, error) {
	r, err := restore(ctx, from, path, now)
	if err != nil {
		err = fmt.Errorf("restore %s: %w", from, err)
	}
	return r, err
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
	r, err = s.GoOnFromNow(ctx)
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

// examine checks that a copy is complete and supported by this program, and returns the
// defaults of its jobs.
func examine(ctx context.Context, from, part string) (defaults job.Defaults, err error) {
	c, err := openConn(part, false)
	if err != nil {
		return defaults, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := known(c, from); err != nil {
		return defaults, err
	}
	if err := damage(ctx, c, "pragma integrity_check(1)"); err != nil {
		return defaults, err
	}
	text := ""
	q := c.stmt("select value from settings where name = ?").bindText(sqldb.DefaultsName)
	for q.next() {
		text = q.text()
	}
	if err := q.err(); err != nil || text == "" {
		return defaults, err
	}
	return defaults, json.Unmarshal([]byte(text), &defaults)
}
