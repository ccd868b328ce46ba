//go:build servers

package programs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/test/servers"
)

// rollingFor returns how long instances are restarted: BELFRY_ROLLING, two minutes in make
// test-long.
func rollingFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("BELFRY_ROLLING")
	if text == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("BELFRY_ROLLING: %v", err)
	}
	return d
}

// tick is a run that an instance has written down.
type tick struct{ scheduled, late, pid int }

func readTicks(t *testing.T, file string) (list []tick) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var one tick
		if _, err := fmt.Sscan(line, &one.scheduled, &one.late, &one.pid); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		list = append(list, one)
	}
	return list
}

// ticked waits until a run of some time, or of a later one, is written down.
func ticked(t *testing.T, file string, from time.Time) {
	t.Helper()
	for deadline := time.Now().Add(within); ; <-time.After(50 * time.Millisecond) {
		data, _ := os.ReadFile(file)
		for line := range strings.Lines(string(data)) {
			var one tick
			// The last line may be being written.
			if n, _ := fmt.Sscan(line, &one.scheduled, &one.late, &one.pid); n == 3 && int64(one.scheduled) >= from.Unix() {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing that was due at %s or later has run", from)
		}
	}
}

// judge checks that each second between the first and the last has one run.
func judge(t *testing.T, file string, atLeast time.Duration) {
	t.Helper()
	ticks := readTicks(t, file)
	runs, instances, late := map[int]int{}, map[int]bool{}, []int{}
	for _, one := range ticks {
		runs[one.scheduled]++
		instances[one.pid] = true
		late = append(late, one.late)
	}
	if len(ticks) == 0 {
		t.Fatal("nothing has run")
	}
	slices.Sort(late)
	first, last := ticks[0].scheduled, ticks[0].scheduled
	for _, one := range ticks {
		first, last = min(first, one.scheduled), max(last, one.scheduled)
	}
	for second := first; second <= last; second++ {
		if n := runs[second]; n != 1 {
			t.Errorf("second %d, %d after the first, has run %d times", second, second-first, n)
		}
	}
	if span := time.Duration(last-first) * time.Second; span < atLeast-time.Second {
		t.Errorf("the runs are of %s", span)
	}
	t.Logf("%d ticks by %d instances, late by at most %d ms, half of them by less than %d ms", len(ticks), len(instances), late[len(late)-1], late[len(late)/2])
}

// roll restarts instances one after the other. Each is ready before another one stops; with alone
// there is only one at a time.
func roll(t *testing.T, store string, alone bool) {
	t.Helper()
	file, lines, whole := build(t, "test/programs/ticker"), filepath.Join(t.TempDir(), "lines"), rollingFor(t)
	begin := func() *program {
		p := start(t, file, "STORE="+store, "LINES="+lines)
		p.wait("begun") // it can be stopped
		return p
	}
	instances := []*program{begin()}
	if !alone {
		instances = append(instances, begin(), begin())
	}
	ticked(t, lines, time.Time{})
	// A deployment is paced by the clock of the machine, as the ticks are.
	step := time.NewTicker(3 * time.Second)
	defer step.Stop()
	deadline := time.Now().Add(whole)
	for time.Now().Before(deadline) {
		<-step.C
		if !alone {
			instances = append(instances, begin())
		}
		instances[0].stop()
		instances = instances[1:]
		if alone {
			instances = append(instances, begin())
		}
	}
	ticked(t, lines, deadline)
	for _, p := range instances {
		p.stop()
	}
	judge(t, lines, whole)
}

func TestNoTickIsLostOrDoubledWhileInstancesAreRestarted(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		roll(t, servers.StartPostgres(t).Schema(), false)
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		server := servers.StartMariaDB(t)
		url, err := server.Database()
		if err != nil {
			t.Fatal(err)
		}
		roll(t, url, false)
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		roll(t, strings.Replace(servers.StartEtcd(t).URL(), "http:", "etcd:", 1), false)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		roll(t, servers.StartRedis(t).URL(), false)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		roll(t, filepath.Join(t.TempDir(), "belfry.db"), true)
	})
}
