package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/belfry-cron/belfry/store"
)

func TestCheckSeesDamageBesideAServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "belfry.db")
	s := openStore(t, path, Options{})
	if complete, err := Check(t.Context(), path); err != nil || !complete {
		t.Errorf("a store that is open and whole: %v, %v", complete, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if complete, err := Check(over, path); err != nil || complete {
		t.Errorf("without time: %v, %v", complete, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 6*4096), 3*4096); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if complete, err := Check(t.Context(), path); !errors.Is(err, store.ErrDamaged) || complete {
		t.Errorf("a torn file: %v, %v", complete, err)
	}
}
