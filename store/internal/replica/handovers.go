package replica

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/btree"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// endedMax bounds the ended handovers that are kept, in the memory of each process: two hours at a
// hundred a second.
const endedMax = 100_000

func handoverKey(number int64) string { return handoverKeys + big(number) }

// handovers of the copy. They are replaced and not changed.
type handovers struct {
	byNumber map[int64]*store.Handover
	ofRun    map[job.ID]map[int64]*store.Handover
	asking   map[string]*btree.BTreeG[*store.Handover] // open handovers by kind, ordered by Ask
	ended    *btree.BTreeG[*store.Handover]            // ordered by their end
	last     int64                                     // last reserved number
}

func newHandovers() handovers {
	return handovers{
		byNumber: map[int64]*store.Handover{}, ofRun: map[job.ID]map[int64]*store.Handover{}, asking: map[string]*btree.BTreeG[*store.Handover]{},
		ended: handoversBy(func(h *store.Handover) time.Time { return h.Ended }),
	}
}

func handoversBy(at func(*store.Handover) time.Time) *btree.BTreeG[*store.Handover] {
	return btree.NewG(degree, func(a, b *store.Handover) bool {
		return cmp.Or(at(a).Compare(at(b)), cmp.Compare(a.Number, b.Number)) < 0
	})
}

func (s *handovers) put(h *store.Handover) {
	s.drop(h.Number)
	s.byNumber[h.Number] = h
	if s.ofRun[h.Attempt.Run] == nil {
		s.ofRun[h.Attempt.Run] = map[int64]*store.Handover{}
	}
	s.ofRun[h.Attempt.Run][h.Number] = h
	if h.IsOver() {
		s.ended.ReplaceOrInsert(h)
		return
	}
	if s.asking[h.Kind] == nil {
		s.asking[h.Kind] = handoversBy(func(h *store.Handover) time.Time { return h.Ask })
	}
	s.asking[h.Kind].ReplaceOrInsert(h)
}

func (s *handovers) drop(n int64) {
	h := s.byNumber[n]
	if h == nil {
		return
	}
	delete(s.byNumber, n)
	if of := s.ofRun[h.Attempt.Run]; of != nil {
		if delete(of, n); len(of) == 0 {
			delete(s.ofRun, h.Attempt.Run)
		}
	}
	if h.IsOver() {
		s.ended.Delete(h)
	} else {
		s.asking[h.Kind].Delete(h)
	}
}

// open returns the handovers of a run that have not ended.
func (s *handovers) open(run job.ID) (list []*store.Handover) {
	for _, h := range s.ofRun[run] {
		if !h.IsOver() {
			list = append(list, h)
		}
	}
	return list
}

// outdated passes expired handovers to remove, until it returns false.
func (s *handovers) outdated(now time.Time, remove func(h *store.Handover) bool) {
	left := s.ended.Len()
	s.ended.Ascend(func(h *store.Handover) bool {
		if left <= endedMax && now.Sub(h.Ended) <= store.HandoverLife {
			return false
		}
		left--
		return remove(h)
	})
}

// Handovers implements ledger.Backend.
func (b *Backend) Handovers(ctx context.Context, q store.HandoverQuery) (list []store.Handover, err error) {
	err = b.read(ctx, func(s *state) {
		var found []*store.Handover
		switch {
		case q.Numbers != nil:
			for _, n := range slices.Compact(slices.Sorted(slices.Values(q.Numbers))) {
				if h := s.handovers.byNumber[n]; h != nil {
					found = append(found, h)
				}
			}
		case q.Kind == "":
			for _, n := range slices.Sorted(maps.Keys(s.handovers.ofRun[q.Run])) {
				found = append(found, s.handovers.byNumber[n])
			}
		case s.handovers.asking[q.Kind] != nil:
			s.handovers.asking[q.Kind].Ascend(func(h *store.Handover) bool {
				if h.Ask.After(q.AskBy) || len(found) == q.Limit {
					return false
				}
				found = append(found, h)
				return true
			})
		}
		for _, h := range found[:min(q.Limit, len(found))] {
			list = append(list, *h)
		}
	})
	return list, err
}

func (t *tx) lookHandovers(n *engine.Need, b *engine.Batch) {
	s := &t.b.state.handovers
	for _, number := range n.Handovers {
		t.saw(handoverKey(number))
		if h := s.byNumber[number]; h != nil {
			b.AddHandover(h)
		}
	}
	for _, ref := range n.HandedOver {
		t.sawCell(ref.Job) // each added handover changes it
		for _, h := range s.open(ref.Run) {
			t.saw(handoverKey(h.Number))
			b.AddHandover(h)
		}
	}
	if n.Number {
		t.saw(lastHandoverKey)
		b.UseNumber(s.last)
	}
}

// handovers puts handovers beside the cells of their runs. Handovers whose cell is not written
// become separate parts, which it returns, so that many of them fit into transactions.
func (w *writer) handovers(c *engine.Changes, of func(job.ID) *part) (list []*part) {
	put := func(h *store.Handover) {
		p := of(h.Attempt.Job)
		if p == w.rest && !w.t.b.isSerial() {
			p = newPart()
			list = append(list, p)
		}
		w.t.b.set(&p.Txn, handoverKey(h.Number), h)
	}
	w.t.b.mu.RLock()
	defer w.t.b.mu.RUnlock()
	for _, h := range c.Handovers {
		w.t.saw(handoverKey(h.Number))
		own := *h
		put(&own)
	}
	for _, ask := range c.AskNow {
		for _, h := range w.t.b.state.handovers.open(ask.Run) {
			own := *h
			own.Ask = ask.At
			w.t.saw(handoverKey(h.Number))
			put(&own)
		}
	}
	if c.Number > 0 {
		w.t.b.set(&w.rest.Txn, lastHandoverKey, lastHandover(c.Number))
	}
	return list
}

func codeHandover(c *coder, h *store.Handover) {
	c.int64(&h.Number)
	c.id(&h.Attempt.Job)
	c.id(&h.Attempt.Run)
	c.int(&h.Attempt.Number)
	c.id(&h.Attempt.Token)
	text(c, &h.Kind)
	text(c, &h.To)
	text(c, &h.About)
	c.duration(&h.Timeout)
	c.time(&h.Sent)
	c.time(&h.Seen)
	c.time(&h.Ask)
	c.time(&h.Ended)
}
