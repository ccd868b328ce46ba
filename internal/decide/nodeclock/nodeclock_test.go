package nodeclock

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

const (
	life       = 6 * time.Second
	renewEvery = 2 * time.Second
	tick       = 100 * time.Millisecond
)

// machine is a node with its own clocks.
type machine struct {
	id     job.ID
	clock  *Clock
	wall   time.Duration // how far its wall clock is ahead of the true time
	drift  float64       // clock seconds per true second
	boot   time.Duration // its boot clock at the true time 0
	asleep bool          // it neither renews nor receives
	delay  time.Duration // delay of what it receives
	inbox  []letter
	// unusable is how long it could not plan.
	unusable time.Duration
	why      string
}

type letter struct {
	Renewal
	arrives time.Duration
}

// world is several machines on a store.
type world struct {
	t        *testing.T
	now      time.Duration // the true time
	revision int64
	machines []*machine
}

var epoch = time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)

func newWorld(t *testing.T, n int) *world {
	w := &world{t: t}
	for range n {
		w.join(0)
	}
	w.pass(10 * time.Second)
	for _, m := range w.machines {
		m.unusable = 0
	}
	return w
}

// join starts a machine whose clock is ahead.
func (w *world) join(wall time.Duration) *machine {
	n := len(w.machines)
	m := &machine{id: job.ID{byte(n + 1)}, wall: wall, boot: time.Duration(n*1000)*time.Hour - w.now}
	m.clock = New(w.ahead(m), life)
	w.machines = append(w.machines, m)
	w.renew(m)
	return m
}

func (w *world) bootOf(m *machine) time.Duration { return m.boot + w.now }
func (w *world) ahead(m *machine) time.Time {
	return epoch.Add(m.wall).Add(w.now - w.bootOf(m))
}

// set sets the clock of a machine.
func (w *world) set(m *machine, wall time.Duration) {
	m.wall = wall
	w.renew(m) // a node renews after a step
}

func (w *world) renew(m *machine) {
	m.clock.Now(w.ahead(m), w.bootOf(m))
	standing, since := m.clock.Standing()
	w.revision++
	for _, to := range w.machines {
		r := Renewal{Session: m.id, Clock: epoch.Add(m.wall).Add(w.now), Standing: standing, Since: since, Revision: w.revision, Own: to == m}
		to.inbox = append(to.inbox, letter{r, w.now + to.delay})
	}
}

func (w *world) pass(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.now += tick
		for i, m := range w.machines {
			if m.wall += time.Duration(m.drift * float64(tick)); m.asleep {
				continue
			}
			for len(m.inbox) > 0 && m.inbox[0].arrives <= w.now {
				m.clock.Heard(m.inbox[0].Renewal, w.bootOf(m))
				m.inbox = m.inbox[1:]
			}
			if (w.now+time.Duration(i)*300*time.Millisecond)%renewEvery == 0 {
				w.renew(m)
			}
			m.clock.Now(w.ahead(m), w.bootOf(m))
			if err := m.clock.Usable(); err != nil {
				m.unusable += tick
				m.why = err.Error()
			}
		}
	}
}

// off returns how far the shared clock of a machine is from the true time.
func (w *world) off(m *machine) time.Duration {
	return m.clock.Now(w.ahead(m), w.bootOf(m)).Sub(epoch.Add(w.now))
}

// usable lists the machines that may plan.
func (w *world) usable() string {
	var list []string
	for _, m := range w.machines {
		if m.clock.Usable() == nil {
			list = append(list, fmt.Sprint(m.id[0]))
		}
	}
	return strings.Join(list, " ")
}

func (w *world) want(what, usable string, off time.Duration) {
	w.t.Helper()
	if got := w.usable(); got != usable {
		w.t.Errorf("%s: may plan %q, want %q", what, got, usable)
	}
	for _, m := range w.machines {
		if got := w.off(m); (got - off).Abs() > tick {
			w.t.Errorf("%s: the shared clock of machine %d is off by %s, want %s", what, m.id[0], got, off)
		}
	}
}

var steps = []time.Duration{
	1500 * time.Millisecond, 10 * time.Second, 90 * time.Second, 10 * time.Minute, time.Hour,
	-1500 * time.Millisecond, -10 * time.Second, -90 * time.Second, -10 * time.Minute, -time.Hour,
}

func TestOneWrongClockOfSeveralMovesNothing(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		for wrong := range n { // including the oldest one
			for _, step := range steps {
				t.Run(fmt.Sprintf("%d of %d by %s", wrong+1, n, step), func(t *testing.T) {
					w := newWorld(t, n)
					var right []string
					for i := range n {
						if i != wrong {
							right = append(right, fmt.Sprint(i+1))
						}
					}
					m := w.machines[wrong]
					w.set(m, step)
					for range 300 {
						w.want("after the step", strings.Join(right, " "), 0)
						w.pass(tick)
					}
					w.set(m, 0)
					w.want("set back", all(n), 0)
					w.pass(30 * time.Second)
					w.want("later", all(n), 0)
					for i, o := range w.machines {
						if i != wrong && o.unusable > 0 {
							t.Errorf("machine %d could not plan for %s: %s", i+1, o.unusable, o.why)
						}
					}
				})
			}
		}
	}
}

func all(n int) string { return strings.TrimSpace("1 2 3 4 5"[:2*n-1]) }

func TestAnOnlyNodeConfirmsItsNewTime(t *testing.T) {
	for _, step := range steps {
		t.Run(step.String(), func(t *testing.T) {
			w := newWorld(t, 1)
			w.set(w.machines[0], step)
			w.want("after the step", "", 0) // the former time continues
			w.pass(tick)
			w.want("one renewal later", "", 0)
			w.pass(renewEvery)
			w.want("two renewals later", "1", step)
		})
	}
}

func TestAnEvenSplitIsDecidedByWhoIsUndisturbedForLonger(t *testing.T) {
	w := newWorld(t, 1)
	w.join(10 * time.Minute)
	w.pass(20 * time.Second)
	w.want("the second is wrong", "1", 0)
	if err := w.machines[1].clock.Usable(); err == nil || !strings.Contains(err.Error(), "10m0s ahead of the clock of another node") {
		t.Errorf("it says %v", err)
	}

	w = newWorld(t, 4)
	w.set(w.machines[0], time.Minute)
	w.set(w.machines[1], time.Minute)
	w.pass(20 * time.Second)
	w.want("two of four were set", "3 4", 0)
}

func TestMostNodesAreFollowed(t *testing.T) {
	for _, n := range []int{3, 5} {
		w := newWorld(t, n)
		for _, m := range w.machines[:n/2+1] { // all clocks were wrong, and are corrected one by one
			w.set(m, time.Minute)
			w.pass(tick)
		}
		w.pass(3 * renewEvery) // two renewals to confirm, and one that counts
		w.want("most were set", strings.Join(strings.Fields(all(n))[:n/2+1], " "), time.Minute)
		for _, m := range w.machines[n/2+1:] {
			w.set(m, time.Minute)
		}
		w.want("all were set", all(n), time.Minute)
	}
}

func TestAllSetAtOnceAreConfirmed(t *testing.T) {
	w := newWorld(t, 3)
	for _, m := range w.machines {
		w.set(m, -time.Hour)
	}
	w.want("after the step", "", 0)
	w.pass(renewEvery + tick)
	w.want("two renewals later", all(3), -time.Hour)
}

func TestASlowDriftEndsAtItsNode(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		for _, drift := range []float64{0.01, -0.01} {
			w := newWorld(t, n)
			w.machines[n-1].drift = drift
			for range 6000 {
				w.pass(tick)
				for _, m := range w.machines {
					if off := w.off(m).Abs(); m.clock.Usable() == nil && off > Apart {
						t.Fatalf("machine %d of %d plans with a clock that is off by %s", m.id[0], n, off)
					}
				}
			}
			if got, want := w.usable(), strings.TrimSpace(all(n)[:2*n-2]); got != want {
				t.Errorf("after a drift of %v of %d: may plan %q, want %q", drift, n, got, want)
			}
			for _, m := range w.machines[:n-1] {
				if m.unusable > 0 {
					t.Errorf("machine %d of %d could not plan for %s: %s", m.id[0], n, m.unusable, m.why)
				}
			}
		}
	}
}

func TestALateWatchIsNoWrongClock(t *testing.T) {
	w := newWorld(t, 3)
	for _, late := range []time.Duration{5 * time.Second, 0, 4 * time.Second, 3 * time.Second, 0} {
		w.machines[2].delay = late
		for range 80 {
			w.pass(tick)
			w.want(fmt.Sprintf("with a delay of %s", late), all(3), 0)
		}
	}
	// All renewals are late, including the own ones.
	for _, m := range w.machines {
		m.delay = 2500 * time.Millisecond
	}
	for range 600 {
		w.pass(tick)
		if got := w.usable(); got != all(3) {
			t.Fatalf("at %s may plan %q: %s", w.now, got, w.machines[0].why)
		}
		for _, m := range w.machines {
			if off := w.off(m); off > tick || off < -2600*time.Millisecond {
				t.Fatalf("the shared clock of machine %d is off by %s", m.id[0], off)
			}
		}
	}
}

func TestASuspendedMachineKeepsTheTime(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		w := newWorld(t, n)
		m := w.machines[n-1]
		m.asleep = true
		w.pass(5 * time.Minute)
		m.asleep = false
		for range 100 {
			w.pass(tick)
			w.want("after the suspend", all(n), 0)
		}
		// All its clocks stood still, as on a paused virtual machine.
		m.asleep = true
		w.pass(5 * time.Minute)
		m.asleep, m.boot, m.wall = false, m.boot-5*time.Minute, -5*time.Minute
		w.pass(2 * renewEvery)
		want, off := strings.TrimSpace(all(n)[:2*n-2]), time.Duration(0)
		if n == 1 {
			want, off = "1", -5*time.Minute
		}
		w.want("after the pause", want, off)
		w.set(m, 0)
		w.pass(2 * renewEvery)
		w.want("set", all(n), 0)
	}
}

func TestTheSharedClockGoesBackOnlyWhenItWasSet(t *testing.T) {
	c := New(epoch, life)
	own, other := job.ID{1}, job.ID{2}
	c.Heard(Renewal{Session: other, Clock: epoch.Add(time.Minute + 900*time.Millisecond), Since: 1, Revision: 2}, time.Minute)
	before := c.Now(epoch, time.Minute)
	if want := epoch.Add(time.Minute + 900*time.Millisecond); !before.Equal(want) {
		t.Fatalf("with another node it shows %s, want %s", before, want)
	}
	c.Forget(other)
	if got := c.Now(epoch, time.Minute); !got.Equal(before) {
		t.Errorf("a little later than its clock it shows %s, want %s", got, before)
	}
	c.Now(epoch.Add(-time.Hour), time.Minute)
	for i := range int64(confirmations) {
		c.Heard(Renewal{Session: own, Standing: Doubtful, Revision: 3 + i, Own: true}, time.Minute)
	}
	if got, want := c.Now(epoch.Add(-time.Hour), time.Minute), epoch.Add(time.Minute-time.Hour); !got.Equal(want) {
		t.Errorf("set back by an hour it shows %s, want %s", got, want)
	}
}

func TestSmallStepsAddUp(t *testing.T) {
	c := New(epoch, life)
	for ahead := time.Duration(0); ahead <= stepMin; ahead += 100 * time.Millisecond {
		if c.Now(epoch.Add(ahead), time.Minute); c.Usable() != nil {
			t.Errorf("%s ahead: %v", ahead, c.Usable())
		}
	}
	if c.Now(epoch.Add(stepMin+100*time.Millisecond), time.Minute); c.Usable() == nil {
		t.Error("nothing was noticed")
	}
}

func TestNodesThatAreGoneDoNotCount(t *testing.T) {
	w := newWorld(t, 2)
	w.machines[0].asleep = true
	if w.pass(life); !w.machines[1].clock.KnowsOthers(w.bootOf(w.machines[1])) {
		t.Error("it is forgotten too soon")
	}
	w.pass(renewEvery)
	if w.machines[1].clock.KnowsOthers(w.bootOf(w.machines[1])) {
		t.Error("a silent node counts")
	}
	gone := w.machines[0].id
	w.machines[1].clock.Forget(gone)
	w.pass(forgetAfter + renewEvery)
	w.machines = slices.Delete(w.machines, 0, 1)
	if n := len(w.machines[0].clock.nodes); n != 1 {
		t.Errorf("%d nodes are remembered, want 1", n)
	}
}

func TestASecondProgramOfAnOlderVersionCounts(t *testing.T) {
	w := newWorld(t, 2)
	c, boot := w.machines[0].clock, w.bootOf(w.machines[0])
	for i := range 10 { // older nodes publish neither standing nor since
		c.Heard(Renewal{Session: job.ID{9}, Clock: epoch.Add(w.now).Add(time.Hour), Revision: w.revision + int64(i)}, boot)
	}
	w.pass(tick)
	w.want("two of three are right", all(2), 0)
}

func TestASetClockOfAnotherNodeIsMeasuredAgain(t *testing.T) {
	c := New(epoch, life)
	hear := func(ahead time.Duration, since int64) {
		c.Heard(Renewal{Session: job.ID{2}, Clock: epoch.Add(time.Minute + ahead), Since: since, Revision: 9}, time.Minute)
	}
	hear(time.Hour, 1)
	if c.Now(epoch, time.Minute); c.Usable() == nil {
		t.Error("nothing is off")
	}
	hear(0, 2)
	if c.Now(epoch, time.Minute); c.Usable() != nil {
		t.Error(c.Usable())
	}
}
