package nodeinfo_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/server/nodeinfo"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store/memory"
)

func TestANodeIsRememberedForSomeDaysAfterItsEnd(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := memory.New(memory.Options{Now: func() time.Time { return now }})
	ctx := t.Context()
	boot := time.Duration(0)
	clock := func() time.Duration { boot += time.Millisecond; return boot }
	teller := func(name string) *nodeinfo.Reporter {
		p := nodeinfo.Info{Node: name, Session: job.ID{1}, Version: "1", Partitions: 128}
		p.Starts[59] = 7
		return &nodeinfo.Reporter{Store: s, Clock: clock, About: func() nodeinfo.Info { return p }}
	}
	one, other := teller("ber 1"), teller("ber-2/ö")
	for _, tell := range []func() error{
		func() error { return one.Tell(ctx, false) }, func() error { return other.Tell(ctx, false) }, func() error { return one.Tell(ctx, false) },
	} {
		if err := tell(); err != nil {
			t.Fatal(err)
		}
	}
	list, err := nodeinfo.List(ctx, s, now)
	if err != nil || len(list) != 2 {
		t.Fatalf("the nodes are %+v, %v", list, err)
	}
	if p := list[0]; p.Node != "ber 1" || p.Read != time.Millisecond || p.Write != time.Millisecond || p.Partitions != 128 || p.Starts[59] != 7 || !p.Seen.Equal(now) || !p.Left.IsZero() {
		t.Errorf("the first is %+v", p)
	}
	now = now.Add(time.Hour)
	if err := one.Tell(ctx, true); err != nil {
		t.Fatal(err)
	}
	now = now.Add(nodeinfo.Kept - time.Minute)
	if list, err = nodeinfo.List(ctx, s, now); err != nil || len(list) != 1 || !list[0].Left.Equal(list[0].Seen) {
		t.Errorf("some days later the nodes are %+v, %v", list, err)
	}
	now = now.Add(2 * time.Minute)
	if err := other.Tell(ctx, false); err != nil {
		t.Fatal(err)
	}
	if notes, err := s.Notes(ctx, "node/", "", 10); err != nil || len(notes) != 1 {
		t.Errorf("the notes are %+v, %v", notes, err)
	}
}

func TestTheSecondReportComesSoonerThanTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{})
		begin := time.Now()
		var told []time.Duration
		teller := nodeinfo.Reporter{Store: s, Clock: func() time.Duration { return 0 }, About: func() nodeinfo.Info { return nodeinfo.Info{Node: "a", Session: job.ID{1}} }}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		teller.Run(ctx, func(err error) {
			if err != nil {
				t.Error(err)
			}
			told = append(told, time.Since(begin))
		})
		if want := []time.Duration{0, 10 * time.Second, 70 * time.Second, 130 * time.Second}; !slices.Equal(told, want) {
			t.Errorf("the reports come after %v, want %v", told, want)
		}
	})
}

func TestANodeWithoutASessionSaysNothing(t *testing.T) {
	s := memory.New(memory.Options{})
	teller := nodeinfo.Reporter{Store: s, Clock: func() time.Duration { return 0 }, About: func() nodeinfo.Info { return nodeinfo.Info{Node: "a"} }}
	if err := teller.Tell(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if list, err := nodeinfo.List(t.Context(), s, time.Now()); err != nil || len(list) != 0 {
		t.Errorf("the nodes are %+v, %v", list, err)
	}
}

func TestStartsAreCountedByMinute(t *testing.T) {
	var m nodeinfo.Minutes
	at := time.Date(2026, 11, 20, 12, 0, 30, 0, time.UTC)
	m.Add(at)
	m.Add(at)
	m.Add(at.Add(time.Minute))
	m.Add(at.Add(30 * time.Second)) // a clock that was set back
	if h := m.Hour(at.Add(2 * time.Minute)); h[57] != 2 || h[58] != 2 || h[59] != 0 {
		t.Errorf("the last minutes are %v", h[55:])
	}
	if h := m.Hour(at.Add(62 * time.Minute)); h != (nodeinfo.Hour{}) {
		t.Errorf("an hour later the counts are %v", h)
	}
}
