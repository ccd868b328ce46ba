package sim

import (
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// hours returns how many cluster-hours are asked for by the environment.
func hours(t *testing.T, variable string, otherwise float64) time.Duration {
	t.Helper()
	h := otherwise
	if text := os.Getenv(variable); text != "" {
		var err error
		if h, err = strconv.ParseFloat(text, 64); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
	}
	return time.Duration(h * float64(time.Hour))
}

// seeds returns the first of some worlds, and how many there are: the same each time,
// so that a change is judged by what it does. BELFRY_SEED=random takes others, and a
// number that world alone.
func seeds(t *testing.T, worlds int) (first uint64, n int) {
	t.Helper()
	switch text := os.Getenv("BELFRY_SEED"); text {
	case "":
		return 1, worlds
	case "random":
		return rand.Uint64(), worlds
	default:
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("BELFRY_SEED: %v", err)
		}
		return seed, 1
	}
}

func TestCore(t *testing.T) {
	// What a world has kept goes when it ends: collecting it meanwhile helps nobody.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	total := hours(t, "BELFRY_SIM_CORE", 4)
	first, worlds := seeds(t, max(1, int(total/sliceOf)))
	var next atomic.Uint64
	var attempts, commits atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= uint64(worlds) || t.Failed() {
					return
				}
				c, err := RunCore(first+i, sliceOf)
				if err != nil {
					t.Errorf("BELFRY_SEED=%d: %v", first+i, err)
					return
				}
				attempts.Add(int64(c.History().Attempts()))
				commits.Add(int64(c.History().Commits))
				for _, p := range c.History().Problems() {
					t.Errorf("BELFRY_SEED=%d: %s", first+i, p)
				}
				if name := os.Getenv("BELFRY_JOB"); name != "" {
					_ = c.Describe(os.Stdout, name)
				}
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	ran := time.Duration(worlds) * sliceOf
	t.Logf("%.1f cluster-hours in %.1f s: %.1f a second; %d attempts, %d steps", ran.Hours(), took.Seconds(), ran.Hours()/took.Seconds(), attempts.Load(), commits.Load())
}

func TestTheSameSeedIsTheSameHistory(t *testing.T) {
	var prints [2]uint64
	for i := range prints {
		c, err := RunCore(7, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if prints[i], err = c.Fingerprint(); err != nil {
			t.Fatal(err)
		}
	}
	if prints[0] != prints[1] {
		t.Errorf("two runs of one seed differ: %x and %x", prints[0], prints[1])
	}
}
