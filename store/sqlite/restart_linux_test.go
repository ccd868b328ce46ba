package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/store"
)

// A store that was killed on a full disk without ballast opens and admits a node once there is a
// little room, reports how much it needs if there is less, and accepts new runs once its ballast
// fits.
func TestAStoreThatWasKilledOnAFullDiskOpensAgain(t *testing.T) {
	path := filepath.Join(mounted(t, "size=24m"), "belfry.db")
	s := openStore(t, path, Options{})
	ctx := t.Context()
	ids := &tally{}
	session := store.Session{ID: ids.next(), Node: "a", Machine: "m", DataDir: "d"}
	if _, err := s.Join(ctx, session); err != nil {
		t.Fatal(err)
	}
	grow := func(s *Store) error {
		return s.AppendOutput(ctx, []store.OutputChunk{{Run: ids.next(), Attempt: 1, Data: make([]byte, 16<<10)}})
	}
	for grow(s) == nil { // until the ballast is released
	}
	for s.Renew(ctx, session.ID, store.Load{}) == nil { // until its space is used up
	}
	left := map[string][]byte{} // the files of a killed server
	var size int64
	for _, tail := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + tail)
		if err != nil {
			t.Fatal(err)
		}
		left[tail] = data
		size += int64(len(data)+4095) / 4096 * 4096
	}
	for _, c := range []struct {
		room        int64
		opens, runs bool
	}{{4096, false, false}, {startRoom, true, false}, {workRoom + 1<<20, true, true}} {
		path := filepath.Join(mounted(t, fmt.Sprintf("size=%d", size+c.room)), "belfry.db")
		for tail, data := range left {
			if err := os.WriteFile(path+tail, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(ctx, path, Options{})
		if (err == nil) != c.opens {
			t.Errorf("with room for %d bytes: %v", c.room, err)
		}
		if err != nil {
			if !errors.Is(err, store.ErrNoSpace) || !strings.Contains(err.Error(), "are free, and 1.0 MiB must be free for the server to start, 9.0 MiB for new runs") {
				t.Errorf("with room for %d bytes: %v", c.room, err)
			}
			continue
		}
		if _, err := s.Join(ctx, store.Session{ID: ids.next(), Node: "a", Machine: "m", DataDir: "d"}); err != nil {
			t.Errorf("with room for %d bytes: %v", c.room, err)
		}
		if err := grow(s); (err == nil) != c.runs || err != nil && !strings.Contains(err.Error(), "and 9.0 MiB must be free for new runs") {
			t.Errorf("with room for %d bytes: %v", c.room, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
