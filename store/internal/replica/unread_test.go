package replica_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
	"github.com/belfry-cron/belfry/store/storetest"
)

// cutOff is a driver that cannot read the latest version.
type cutOff struct {
	driver
	away *atomic.Bool
}

func (d cutOff) Tail(ctx context.Context) (int64, error) {
	if d.away.Load() {
		return 0, store.ErrAway
	}
	return d.driver.Tail(ctx)
}

func TestARefusalThatCannotBeConfirmedIsNoAnswer(t *testing.T) {
	d := cutOff{driver{Shelf: newShelf()}, &atomic.Bool{}}
	s := openOn(t, d, storetest.Options{Now: time.Now, LookAhead: store.LookAheadDefault})
	unknown := store.DeleteJob{UID: job.ID{1}, IfVersion: store.AnyVersion, Actor: "ann"}
	if err := s.DeleteJob(t.Context(), unknown); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("got %v, want %v", err, store.ErrNotFound)
	}
	d.away.Store(true)
	if err := s.DeleteJob(t.Context(), unknown); !errors.Is(err, store.ErrAway) {
		t.Errorf("got %v, want %v", err, store.ErrAway)
	}
}

// An unreadable job is not a missing job.
func TestStateThatCannotBeReadIsRefused(t *testing.T) {
	documents, err := job.Decode("job.yaml", []byte("name: a\nschedule: {every: 1h}\nrun: {shell: 'true'}"))
	if err != nil {
		t.Fatal(err)
	}
	put := store.PutJob{Definition: documents[0].Job, IfVersion: store.AnyVersion, Actor: "ann"}
	for name, change := range map[string]struct {
		value func([]byte) []byte
		want  string
		is    error
	}{
		"a newer format":          {func(v []byte) []byte { return append([]byte{v[0] + 3}, v[1:]...) }, "a newer belfry has written it", nil},
		"a value that is cut off": {func(v []byte) []byte { return v[:len(v)/2] }, "the state of job ", store.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			shared := newShelf()
			s := open(t, shared, storetest.Options{Now: time.Now, LookAhead: store.LookAheadDefault})
			if _, err := store.PutOne(t.Context(), s, put); err != nil {
				t.Fatal(err)
			}
			d := driver{Shelf: shared}
			cells, err := d.Range(t.Context(), replica.Copied+"c/", replica.Copied+"c0", 10, false)
			if err != nil || len(cells) != 1 {
				t.Fatal(cells, err)
			}
			write := func(value []byte) {
				t.Helper()
				txn := &replica.Txn{Puts: []replica.Pair{{Key: cells[0].Key, Value: value}}}
				if _, _, err := d.Commit(t.Context(), txn); err != nil {
					t.Fatal(err)
				}
			}
			write(change.value(cells[0].Value))
			_, read := store.JobNamed(t.Context(), s, "default", "a")
			_, written := store.PutOne(t.Context(), s, put)
			for what, err := range map[string]error{"read": read, "written": written} {
				if err == nil || !strings.Contains(err.Error(), change.want) || change.is != nil && !errors.Is(err, change.is) {
					t.Errorf("%s: got %v", what, err)
				}
			}
			write(cells[0].Value)
			if j, err := store.JobNamed(t.Context(), s, "default", "a"); err != nil || j.Definition.Version != 1 {
				t.Errorf("with the value back: got %v, %v", j, err)
			}
		})
	}
}
