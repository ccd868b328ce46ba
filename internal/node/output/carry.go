package output

import (
	"time"

	"github.com/belfry-cron/belfry/job"
)

// State is a capture that another version of the program continues.
type State struct {
	Made  int64 `json:"made"`
	Seq   int   `json:"seq"`
	Bytes int64 `json:"bytes"`
	// Lines and InLine count lines. Both are zero, despite Bytes, from versions that did not count.
	Lines    int64  `json:"lines,omitempty"`
	InLine   Stream `json:"in_line,omitempty"`
	Lost     int64  `json:"lost,omitempty"`
	HeadLeft int    `json:"head_left"`
	InTail   bool   `json:"in_tail,omitempty"`
	TailCost int    `json:"tail_cost,omitempty"`
	DropFrom int    `json:"drop_from,omitempty"`
	DropTo   int    `json:"drop_to,omitempty"`
	Heads    int    `json:"heads,omitempty"`
	// Replaces is set for output that is read again from its beginning: the first block replaces the
	// stored chunks below this number.
	Replaces int `json:"replaces,omitempty"`
	// Kept are the stored blocks of the last half: number, cost and bytes of each.
	Kept    [][3]int32    `json:"kept,omitempty"`
	Pending []StoredBlock `json:"pending,omitempty"`
	// Ends are what [Capture.End] returns, of standard output and of standard error.
	Ends []StoredEnd `json:"ends,omitempty"`
}

// StoredEnd is the end of a stream.
type StoredEnd struct {
	Text []byte `json:"text,omitempty"`
	Cut  bool   `json:"cut,omitempty"`
}

// StoredBlock is a block that is not known to be in the store.
type StoredBlock struct {
	Number int64     `json:"number"`
	Seq    int       `json:"seq"`
	Offset int64     `json:"offset"`
	Bytes  int       `json:"bytes"`
	Began  time.Time `json:"began"`
	Cost   int       `json:"cost"`
	Tail   bool      `json:"tail,omitempty"`
	Data   []byte    `json:"data"`
}

// Carry ends a capture that another version of the program continues. It does not wait for the
// sink.
func (c *Capture) Carry() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seal()
	c.closed = true
	if c.dirty {
		c.collector.forget(c)
	}
	for _, b := range c.pending {
		c.pack(b)
	}
	s := State{
		Made: c.blockCount, Seq: c.seq, Bytes: c.bytes, Lost: c.lost, HeadLeft: c.headLeft, InTail: c.inTail, TailCost: c.tailCost,
		DropFrom: c.dropFrom, DropTo: c.dropTo, Heads: c.heads, Replaces: c.replaces,
	}
	if !c.uncounted {
		s.Lines, s.InLine = c.lines.ended, c.lines.open
	}
	for _, k := range c.tailSpans {
		s.Kept = append(s.Kept, [3]int32{k.seq, k.cost, k.bytes})
	}
	for _, b := range c.pending {
		s.Pending = append(s.Pending, StoredBlock{Number: b.number, Seq: b.seq, Offset: b.offset, Bytes: b.bytes, Began: b.began, Cost: b.cost, Tail: b.tail, Data: b.data})
	}
	for _, e := range c.ends {
		s.Ends = append(s.Ends, StoredEnd{e.text, e.cut})
	}
	c.pending, c.tailSpans, c.spare = nil, nil, nil
	c.hold(-c.memory)
	return s
}

// Anew is the state of a capture whose output is read again from its beginning: its chunks replace the
// stored ones, whose numbers are below chunks.
func (c *Collector) Anew(chunks int) State {
	return State{Seq: chunks, HeadLeft: c.half, Replaces: chunks}
}

// Resume returns a capture that continues where Carry ended one.
func (c *Collector) Resume(run job.ID, attempt int, s State) *Capture {
	capture := c.Capture(run, attempt)
	capture.blockCount, capture.seq, capture.bytes, capture.lost, capture.headLeft = s.Made, s.Seq, s.Bytes, s.Lost, s.HeadLeft
	capture.inTail, capture.tailCost, capture.dropFrom, capture.dropTo, capture.heads = s.InTail, s.TailCost, s.DropFrom, s.DropTo, s.Heads
	capture.replaces = s.Replaces
	capture.lines, capture.uncounted = lineCount{s.Lines, s.InLine}, s.Bytes > 0 && s.Lines == 0 && s.InLine == 0
	for _, k := range s.Kept {
		capture.tailSpans = append(capture.tailSpans, span{k[0], k[1], k[2]})
	}
	for _, b := range s.Pending {
		capture.pending = append(capture.pending, &block{
			number: b.Number, seq: b.Seq, offset: b.Offset, bytes: b.Bytes, began: b.Began, cost: b.Cost, tail: b.Tail, data: b.Data,
			sealed: true, packed: true,
		})
		capture.hold(int64(cap(b.Data)))
	}
	for i := range min(len(s.Ends), len(capture.ends)) {
		capture.ends[i] = end{s.Ends[i].Text, s.Ends[i].Cut}
		capture.hold(int64(cap(s.Ends[i].Text)))
	}
	if len(capture.pending) > 0 {
		capture.dirty = true
		c.enqueue(capture)
	}
	return capture
}
