package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		fmt.Fprintln(os.Stderr, writeUntilKilled(path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func TestStore(t *testing.T) {
	var asked sync.Map // the statements that the stores of the suite have used
	storetest.Serial(storetest.Run)(t, func(t *testing.T, o storetest.Options) store.Store {
		s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{Now: o.Now, LookAhead: o.LookAhead, Defaults: o.Defaults, NewID: o.NewID, Revisions: o.Revisions, Guard: true})
		t.Cleanup(func() {
			for text, st := range s.d.statements.Range {
				asked.Store(text, st)
			}
		})
		return s
	})
	t.Run("what it asks is answered by indexes", func(t *testing.T) { checkPlans(t, &asked) })
}

// openStore opens a store until the end of the test.
func openStore(t testing.TB, path string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// read runs do on a connection that sees one state of the database.
func (s *Store) read(ctx context.Context, do func(c *conn) error) error {
	t, err := s.d.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer t.Rollback()
	return do(t.(*tx).c)
}

// write runs do in a transaction and returns when it is on disk.
func (s *Store) write(ctx context.Context, do func(t *tx) error) error {
	begun, err := s.d.Begin(ctx, false)
	if err != nil {
		return err
	}
	defer begun.Rollback()
	if err := do(begun.(*tx)); err != nil {
		return err
	}
	_, err = begun.Commit(ctx)
	return err
}
