package replica

import (
	"testing"

	"github.com/belfry-cron/belfry/job"
)

// What a commit has written comes back, or what another process has written instead.
func TestTheCopyTakesAnOwnValueOnlyForItsBytes(t *testing.T) {
	valueOf := func(name string) *cell {
		c := &cell{}
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
