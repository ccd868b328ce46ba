package replica

import (
	"bytes"
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The copy takes an own value only if the commit has written its bytes.
func TestTheCopyTakesAnOwnValueOnlyForItsBytes(t *testing.T) {
	valueOf := func(name string) *cell {
		c := &cell{head: &head{}}
		c.job.UID, c.job.Name = job.ID{1}, name
		return c
	}
	var b Backend
	mine, theirs := &Txn{}, valueOf("theirs")
	b.set(mine, cellKey(job.ID{1}), valueOf("mine"))
	b.own.remember(mine)

	p := Pair{Key: cellKey(job.ID{1}), Value: encodeCell(theirs)}
	if b.own.find(&p); p.Is != nil {
		t.Fatalf("the value of another process is taken for the own one, %+v", p.Is)
	}
	p.Value = mine.Puts[0].Value
	if b.own.find(&p); p.Is != mine.Puts[0].Is {
		t.Errorf("the own value is %+v, want the one that was encoded", p.Is)
	}
	if len(b.own.values) > 0 {
		t.Errorf("%d values are still remembered when all have come back", len(b.own.values))
	}

	b.own.remember(mine)
	b.own.forget(&Txn{Puts: []Pair{{Key: mine.Puts[0].Key, Is: theirs}}})
	if len(b.own.values) != 1 {
		t.Error("the refusal of one commit forgets the value of another")
	}
	if b.own.forget(mine); len(b.own.values) > 0 {
		t.Error("the value of a refused commit is still remembered")
	}
}

// A cell is written again with the bytes of the runs that have not changed.
func TestACellIsEncodedAsIfNothingWasRemembered(t *testing.T) {
	run := func(id byte, state job.RunState) *store.Run {
		return &store.Run{Run: job.Run{ID: job.ID{id}, JobUID: job.ID{1}, Name: "j", State: state}}
	}
	c := &cell{head: &head{}, runs: []*store.Run{run(1, job.StateReady), run(2, job.StateReady), run(3, job.StateReady), run(4, job.StateReady)}}
	encodeCell(c)
	first := c.runs
	for what, runs := range map[string][]*store.Run{
		"the same runs":       first,
		"one that is claimed": {run(1, job.StateRunning), first[1], first[2], first[3]},
		"one that is gone":    {first[1], first[2], first[3]},
		"one more":            {first[0], first[1], first[2], first[3], run(5, job.StateReady)},
		"another order":       {first[3], first[0], first[2], first[1]},
		"one alone":           {first[2]},
		"none":                nil,
	} {
		again := *c
		again.runs = runs
		if got, want := encodeCell(&again), encodeCell(&cell{head: &head{}, runs: runs}); !bytes.Equal(got, want) {
			t.Errorf("%s: got %x, want %x", what, got, want)
		}
		third := again // reuses a cell that itself reuses another
		if got, want := encodeCell(&third), encodeCell(&cell{head: &head{}, runs: runs}); !bytes.Equal(got, want) {
			t.Errorf("%s, again: got %x, want %x", what, got, want)
		}
	}
}
