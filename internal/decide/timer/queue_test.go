package timer

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestEntriesLeaveInOrder(t *testing.T) {
	var q Queue
	for i, at := range []int64{30, 10, 20, 10, 1 << 40} {
		q.Push(at, uint32(i))
	}
	if next, ok := q.Next(); !ok || next != 10 {
		t.Errorf("next is %d, %v", next, ok)
	}
	if got, want := q.Due(25, nil), []uint32{1, 3, 2}; !slices.Equal(got, want) {
		t.Errorf("due at 25: got %v, want %v", got, want)
	}
	if got := q.Due(25, nil); len(got) != 0 {
		t.Errorf("due at 25 again: %v", got)
	}
	if got, want := q.Due(1<<41, nil), []uint32{0, 4}; !slices.Equal(got, want) {
		t.Errorf("due at the end: got %v, want %v", got, want)
	}
	if _, ok := q.Next(); ok || q.Len() != 0 {
		t.Errorf("%d entries are left", q.Len())
	}
}

func TestPastEntriesAreDueAtOnce(t *testing.T) {
	var q Queue
	q.Due(100, nil)
	q.Push(5, 1)
	q.Push(100, 2)
	if got, want := q.Due(100, nil), []uint32{1, 2}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestQueueAgreesWithASortedList applies the same random operations to a queue and to a sorted
// list.
func TestQueueAgreesWithASortedList(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		var q Queue
		var model []entry
		now := int64(0)
		for handle := range uint32(500) {
			if random.IntN(4) > 0 {
				at := now + random.Int64N(1<<random.IntN(20)) - 3
				q.Push(at, handle)
				model = append(model, entry{max(at, now), handle})
				continue
			}
			now += random.Int64N(1 << random.IntN(20))
			slices.SortStableFunc(model, func(a, b entry) int { return int(a.at - b.at) })
			n := 0
			for n < len(model) && model[n].at <= now {
				n++
			}
			got := q.Due(now, nil)
			moments := map[uint32]int64{}
			for _, e := range model[:n] {
				moments[e.handle] = e.at
			}
			if len(got) != n || !slices.IsSortedFunc(got, func(a, b uint32) int { return int(moments[a] - moments[b]) }) {
				t.Fatalf("due at %d: got %v, want %v", now, got, model[:n])
			}
			for _, h := range got {
				if _, ok := moments[h]; !ok {
					t.Fatalf("due at %d: %d is not", now, h)
				}
			}
			model = slices.Delete(model, 0, n)
			if next, ok := q.Next(); ok != (len(model) > 0) || ok && next != model[0].at || q.Len() != len(model) {
				t.Fatalf("next is %d, %v, with %d entries; want %v", next, ok, q.Len(), model)
			}
		}
	}
}

func TestAMillionEntriesCostAboutTwentyBytesEach(t *testing.T) {
	const n = 1_000_000
	before := heap()
	q := new(Queue)
	for i := range uint32(n) {
		q.Push(int64(i)*7919%60_000, i)
	}
	if each := (heap() - before) / n; each > 24 {
		t.Errorf("%d bytes for each entry", each)
	}
	runtime.KeepAlive(q)
}

func TestAHerdThatHasLeftHoldsNoMemory(t *testing.T) {
	const n = 200_000
	before := heap()
	q := new(Queue)
	for round := range int64(3) {
		for i := range uint32(n) {
			q.Push(round*1000+int64(i)%3, i)
		}
		if left := len(q.Due(round*1000+10, nil)); left != n {
			t.Fatalf("%d have left", left)
		}
	}
	// A bucket keeps room for some thousand entries.
	if held := int64(heap()) - int64(before); held > 1<<20 {
		t.Errorf("an empty queue holds %d bytes", held)
	}
	runtime.KeepAlive(q)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkMillionDueAtOneInstant(b *testing.B) {
	const n = 1_000_000
	list := make([]uint32, 0, n)
	for b.Loop() {
		b.StopTimer()
		var q Queue
		q.Due(1_000_000, nil)
		for i := range uint32(n) {
			q.Push(1_015_000, i)
		}
		b.StartTimer()
		list = q.Due(1_015_000, list[:0])
	}
	if len(list) != n {
		b.Fatalf("%d left", len(list))
	}
}

func BenchmarkPushAndDue(b *testing.B) {
	var q Queue
	var list []uint32
	now := int64(0)
	for b.Loop() {
		q.Push(now+1+now*7919%15_000, 1)
		now++
		list = q.Due(now, list[:0])
	}
}
