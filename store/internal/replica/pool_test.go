package replica_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/internal/replica"
	"github.com/belfry-cron/belfry/store/storetest"
)

// strict is a driver that refuses commits beyond its bounds, as servers do.
type strict struct{ driver }

func (d strict) Commit(ctx context.Context, t *replica.Txn) (int64, bool, error) {
	if most, _ := d.Bounds(); len(t.Compares) > most {
		return 0, false, fmt.Errorf("too many operations: %d compares", len(t.Compares))
	}
	return d.driver.Commit(ctx, t)
}

// The runs of many jobs in one pool are claimed and ended in one commit if they fit.
func TestManyJobsOfOnePoolAreClaimedAndEndedAtOnce(t *testing.T) {
	const many, size = 500, 150
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	opt := withIDs(storetest.Options{Now: func() time.Time { return now }, LookAhead: time.Minute})
	s := openOn(t, strict{driver{Shelf: newShelf()}}, opt)
	decode := func(text string) job.Document {
		t.Helper()
		documents, err := job.Decode("job.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return documents[0]
	}
	if _, err := s.PutDocument(t.Context(), decode(fmt.Sprintf("kind: pool\nname: p\npool: {size: %d}", size)), store.AnyVersion, "ann"); err != nil {
		t.Fatal(err)
	}
	node, err := s.Join(t.Context(), store.Session{ID: opt.NewID(), Node: "n", Machine: "m", Roles: []string{store.RoleWorker}})
	if err != nil {
		t.Fatal(err)
	}
	var items []store.TriggerItem
	for i := range many {
		j, err := store.PutOne(t.Context(), s, store.PutJob{Definition: decode(fmt.Sprintf("name: j%d\nrun: {shell: 'true'}\npolicy: {concurrency_key: p, overlap: queue, queue_limit: 1000}", i)).Job, Actor: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, store.TriggerItem{ID: opt.NewID(), Job: j.Definition.UID, Kind: job.RunByHand, Key: fmt.Sprint(i), Session: node.ID, Node: "n", Actor: "ann"})
	}
	outcomes, err := s.Trigger(t.Context(), items)
	if err != nil {
		t.Fatalf("trigger: %v", err)
	}
	var attempts []store.Attempt
	for i, m := range outcomes {
		attempts = append(attempts, store.Attempt{Job: items[i].Job, Run: m.Run, Number: 1, Token: opt.NewID()})
	}
	claimed, err := s.Claim(t.Context(), node.ID, attempts)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	var results []store.Result
	for i, c := range claimed {
		if c.Verdict == store.Started {
			results = append(results, store.Result{Attempt: attempts[i], Started: now, Ended: now, Outcome: job.OutcomeSucceeded})
		}
	}
	if len(results) != size {
		t.Errorf("%d runs have started, and the pool has %d slots", len(results), size)
	}
	if _, err := s.Finish(t.Context(), node.ID, results); err != nil {
		t.Fatalf("finish: %v", err)
	}
	held := func() (ready, placed int) {
		t.Helper()
		for q := (store.ActiveQuery{State: job.StateReady, Limit: store.MaxBatch}); ; {
			list, err := s.ListActive(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for i := range list {
				if list[i].HoldsSlot {
					ready++
				}
				if !list[i].Session.IsZero() {
					placed++
				}
			}
			if len(list) < q.Limit {
				return ready, placed
			}
			q.After = list[len(list)-1].Ref()
		}
	}
	if ready, _ := held(); ready != size {
		t.Errorf("%d of the waiting runs have got a slot, and the pool has %d", ready, size)
	}
	if _, err := s.PutDocument(t.Context(), decode("kind: pool\nname: p\npool: {size: 500}"), store.AnyVersion, "ann"); err != nil {
		t.Fatalf("enlarge the pool: %v", err)
	}
	ready, placed := held()
	if ready != many-size || placed != ready {
		t.Errorf("in a pool of 500 slots %d of %d waiting runs have got one, %d on their node", ready, many-size, placed)
	}
	if err := s.Leave(t.Context(), node.ID); err != nil {
		t.Fatalf("leave: %v", err)
	}
	if _, placed = held(); placed != 0 {
		t.Errorf("%d runs are still those of the node that has left", placed)
	}
}
