package refill

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("the store is away")

// fake has n parts of ten jobs, each of which takes a second.
type fake struct {
	parts  int
	counts time.Duration
	fails  func(part int) error // May be nil
	asked  int
}

func (f *fake) Count(ctx context.Context) (int, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(f.counts):
		return 10 * f.parts, nil
	}
}

func (f *fake) Part(context.Context) (Part, error) {
	time.Sleep(time.Second)
	f.asked++
	if f.fails != nil {
		if err := f.fails(f.asked); err != nil {
			return Part{}, err
		}
	}
	if f.parts--; f.parts < 0 {
		return Part{}, nil
	}
	return Part{Looked: 10, Changed: 4, More: true}, nil
}

// all does the whole rewrite, and returns the last report and how long it delayed a start.
func all(t *testing.T, f *fake) (told []store.Refill, held time.Duration) {
	t.Helper()
	r := &Refill{Jobs: f, Tell: func(is store.Refill) { told = append(told, is) }}
	began := time.Now()
	over, err := r.Start(t.Context(), StartMax)
	if err != nil {
		t.Fatal(err)
	}
	held = time.Since(began)
	if !over {
		r.Rest(t.Context(), nil)
	}
	return told, held
}

func TestSmallRefillsFinishBeforeStartup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, held := all(t, &fake{parts: 1})
		want := []store.Refill{{Jobs: 10}, {Jobs: 10, Looked: 10, Changed: 4, Took: 2 * time.Second, Over: true}}
		if !slices.Equal(told, want) || held != 2*time.Second {
			t.Errorf("told %+v, want %+v; the start took %s", told, want, held)
		}
	})
}

func TestBackgroundRefillTakesHalfTheTimeAndReportsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, held := all(t, &fake{parts: 12})
		want := []store.Refill{
			{Jobs: 120},
			{Jobs: 120, Looked: 70, Changed: 28, Took: 10 * time.Second},
			{Jobs: 120, Looked: 120, Changed: 48, Took: 20 * time.Second},
			{Jobs: 120, Looked: 120, Changed: 48, Took: 22 * time.Second, Over: true},
		}
		if !slices.Equal(told, want) || held != StartMax {
			t.Errorf("told %+v, want %+v; the start took %s", told, want, held)
		}
	})
}

func TestSlowCountIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, held := all(t, &fake{parts: 1, counts: time.Hour})
		if told[0].Jobs != 0 || !told[len(told)-1].Over || held > StartMax+time.Second {
			t.Errorf("told %+v; the start took %s", told, held)
		}
	})
}

func TestBackgroundFailureIsReportedOnceAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, _ := all(t, &fake{parts: 5, fails: func(part int) error {
			if part > 3 && part < 20 {
				return errAway
			}
			return nil
		}})
		failures := 0
		for _, is := range told {
			if is.Err != nil {
				failures++
			}
		}
		if last := told[len(told)-1]; failures != 1 || !last.Over || last.Looked != 50 || last.Err != nil {
			t.Errorf("%d failures are reported; the last is %+v", failures, last)
		}
	})
}

func TestAFailureAtTheStartIsItsErrorUnlessThereIsNoSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{errAway, store.ErrNoSpace} {
			r := &Refill{Jobs: &fake{parts: 1, fails: func(int) error { return err }}}
			if over, got := r.Start(t.Context(), StartMax); over || errors.Is(got, errAway) != errors.Is(err, errAway) || errors.Is(got, store.ErrNoSpace) {
				t.Errorf("after %v: %v", err, got)
			}
		}
	})
}

func TestCountsOfOtherNodesEndTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, at := range []int{2, 6} {
			told, _ := all(t, &fake{parts: 10, fails: func(part int) error {
				if part == at {
					return ErrSuperseded
				}
				return nil
			}})
			if last := told[len(told)-1]; !last.Superseded || last.Over || last.Err != nil || last.Looked != 10*(at-1) {
				t.Errorf("at %d the last report is %+v", at, last)
			}
		}
	})
}

func TestClosingTheStoreEndsFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{parts: 1 << 30}
		r := &Refill{Jobs: f}
		closed, ended := make(chan struct{}), make(chan struct{})
		go func() { r.Rest(t.Context(), closed); close(ended) }()
		time.Sleep(time.Minute)
		close(closed)
		<-ended
		if f.asked < 25 || f.asked > 35 {
			t.Errorf("%d parts of a second were done in a minute", f.asked)
		}
	})
}
