package output

import (
	"encoding/binary"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// chunkCost is the overhead of a chunk in the bound: about the size of its row in a store. It
// bounds the number of chunks of an attempt that writes a few bytes each second.
const chunkCost = 64

// blockMin is the least room for a new block.
const blockMin = 1 + markMax + 1

// bufferMin is the first buffer of a block: enough for the few lines that most
// attempts write.
const bufferMin = 256

// Capture receives the output of one attempt. Its methods may be called from many
// goroutines; they never wait for the sink.
type Capture struct {
	collector *Collector
	run       job.ID
	attempt   int

	mu     sync.Mutex
	closed bool
	// dirty is set while the capture is in the collector's list, or with a flush that has not
	// processed it yet.
	dirty bool

	lines     lineCount
	uncounted bool // a version that did not count lines began the capture

	blockCount int64 // blocks
	seq        int   // number of the next chunk
	bytes      int64 // written
	lost       int64 // bytes that were dropped
	memory     int64 // bytes of memory
	headLeft   int   // remaining room of the first half

	inTail   bool // the first half is full
	tailCost int  // cost of the kept, sealed blocks of the last half, stored or not
	dropFrom int  // the first Seq of the last half
	dropTo   int  // the Seq after the last dropped block

	tailSpans []span   // stored blocks of the last half, oldest first
	pending   []*block // unstored blocks, oldest first; all but the last are sealed
	heads     int      // how many of them belong to the first half
	spare     []byte   // the buffer of a dropped block, for reuse

	replaces int             // the first block replaces the stored chunks below this number
	number   func(below int) // see NumberChunks
	numbered int             // the number that it was called with last

	room *shortRoom // nil before the first byte: many functions write nothing
	// ends has the end of each stream's output in completed blocks, at most endMax.
	ends [2]end

	// The collector's, under its mutex.
	since          time.Time // time of the first unshipped byte
	listed         bool
	previous, next *Capture
}

// shortRoom is the memory of a short output, so that it is one allocation.
type shortRoom struct {
	first block
	one   [1]*block
	final [1]Chunk
}

// span is the record of a stored block.
type span struct {
	seq, cost, bytes int32
}

// block becomes a chunk, unless it is dropped before it is shipped.
type block struct {
	number int64 // from 0
	seq    int   // number of the chunk, once packed
	offset int64
	lines  int64 // that end before it
	bytes  int
	began  time.Time // in whole milliseconds
	limit  int       // of len(data)
	cost   int       // share of the limit, once sealed
	tail   bool      // in the last half
	sealed bool      // complete
	packed bool      // data is in its stored form, and immutable

	data       []byte // codecRaw, followed by the records
	lastStream Stream
	lastMillis int64 // time of the last record, since began
	lastLength int   // position of its length in data
}

// Summary is how much an attempt wrote and how much of it is kept.
type Summary struct {
	Bytes, Kept, Lost int64
}

// NumberChunks has f called before a chunk gets a number, with a number that this and the next ones are
// below. It is called before the first output.
func (c *Capture) NumberChunks(f func(below int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number, c.numbered = f, c.seq
}

// numbersAhead is how many chunks get numbers after a call of NumberChunks's function: each may write
// to a file.
const numbersAhead = 64

// Stdout returns the writer of the attempt's standard output. Its Write never fails; after
// Close it does nothing.
func (c *Capture) Stdout() io.Writer { return (*stdout)(c) }

// Stderr is like [Stdout].
func (c *Capture) Stderr() io.Writer { return (*stderr)(c) }

type (
	stdout Capture
	stderr Capture
)

func (w *stdout) Write(p []byte) (int, error) { (*Capture)(w).write(Stdout, p); return len(p), nil }
func (w *stderr) Write(p []byte) (int, error) { (*Capture)(w).write(Stderr, p); return len(p), nil }

// Summary returns the amount of output so far.
func (c *Capture) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.summary()
}

func (c *Capture) summary() Summary {
	return Summary{Bytes: c.bytes, Kept: c.bytes - c.lost, Lost: c.lost}
}

// Close ends the capture. It returns the chunks not known to be stored, to be written in one step
// with the result, and the amount of output. It does not wait for the sink. A second call returns
// no chunks.
func (c *Capture) Close() ([]Chunk, Summary) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, c.summary()
	}
	c.closed = true
	if c.dirty {
		c.collector.forget(c)
	}
	c.seal()
	var chunks []Chunk
	if c.room != nil {
		chunks = c.room.final[:0]
	}
	for _, b := range c.pending {
		c.pack(b)
		chunks = append(chunks, c.chunk(b))
	}
	c.pending, c.tailSpans, c.spare = nil, nil, nil
	c.hold(-c.memory)
	return chunks, c.summary()
}

// endMax bounds the text of End: the longest cause of a failure.
const endMax = reason.CauseLook

// end is the end of a stream.
type end struct {
	text []byte
	cut  bool // text before it was cut
}

// End returns the end of a stream's output, at most endMax bytes, and whether there was more. Call
// it before Close.
func (c *Capture) End(s Stream) (text []byte, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seal()
	e := &c.ends[s-Stdout]
	return e.text, e.cut
}

// remember keeps the ends of the streams in an unpacked block, which may be dropped although one
// stream has no later output.
func (c *Capture) remember(b *block) {
	for records := b.data[1:]; len(records) > 0; {
		mark, n := binary.Uvarint(records)
		length := int(binary.LittleEndian.Uint16(records[n:]))
		records = records[n+lengthSize:]
		had := cap(c.ends[mark&1].text)
		c.ends[mark&1].add(records[:length])
		c.hold(int64(cap(c.ends[mark&1].text) - had))
		records = records[length:]
	}
}

func (e *end) add(p []byte) {
	if len(p) > endMax {
		e.text, e.cut, p = e.text[:0], true, p[len(p)-endMax:]
	}
	if over := len(e.text) + len(p) - endMax; over > 0 {
		e.text, e.cut = e.text[:copy(e.text, e.text[over:])], true
	}
	e.text = append(e.text, p...)
}

func (c *Capture) write(s Stream, p []byte) {
	if len(p) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	now := c.collector.now()
	for len(p) > 0 {
		b := c.open(now, len(p))
		if b.bytes == 0 {
			b.lines = c.lines.before(s)
		}
		had := cap(b.data)
		n := b.add(now, s, p)
		c.lines.add(s, p[:n])
		c.hold(int64(cap(b.data) - had))
		c.bytes += int64(n)
		p = p[n:]
	}
	if !c.dirty {
		c.dirty = true
		c.collector.enqueue(c)
	}
}

// hold counts allocated or released memory.
func (c *Capture) hold(bytes int64) {
	if bytes != 0 {
		c.memory += bytes
		c.collector.memory.Add(bytes)
	}
}

// open returns the block to write to, with room for up to want bytes.
func (c *Capture) open(now time.Time, want int) *block {
	if n := len(c.pending); n > 0 {
		b := c.pending[n-1]
		if !b.sealed && b.limit-len(b.data) > markMax {
			return b
		}
		c.seal()
	}
	// An attempt with little output keeps its room.
	scarce := c.memory > int64(2*c.collector.chunkMax) && c.collector.memory.Load() > c.collector.memoryMax
	limit := min(c.collector.chunkMax, c.headLeft-chunkCost)
	if !c.inTail && (limit < blockMin || scarce) {
		c.inTail = true
	}
	if c.inTail {
		limit = min(c.collector.chunkMax, ChunkMax-markMax) // the count of lines is added at the end
		for scarce && len(c.pending) > c.heads {
			c.leaveOut()
		}
	} else {
		c.heads++
	}
	var b *block
	if c.blockCount > 0 {
		b = &block{}
	} else {
		c.room = &shortRoom{}
		b, c.pending = &c.room.first, c.room.one[:0]
	}
	// Add keeps the monotonic reading; Truncate would drop it.
	began := now.Add(-time.Duration(now.Nanosecond()) % time.Millisecond)
	*b = block{number: c.blockCount, offset: c.bytes, began: began, limit: limit, tail: c.inTail, data: c.spare[:0]}
	c.hold(-int64(cap(c.spare)))
	c.spare = nil
	b.reserve(max(bufferMin, blockMin+want))
	b.data = append(b.data, codecRaw)
	c.hold(int64(cap(b.data)))
	c.pending = append(c.pending, b)
	c.blockCount++
	return b
}

// reserve makes room for n more bytes, or for as many as the limit allows.
func (b *block) reserve(n int) {
	most := b.limit + markMax // the count of lines needs no other buffer
	if need := min(len(b.data)+n, most); need > cap(b.data) {
		grown := make([]byte, len(b.data), min(max(need, 2*cap(b.data)), most))
		copy(grown, b.data)
		b.data = grown
	}
}

// add writes as much of p as fits: at least one byte if there is more room than markMax.
func (b *block) add(now time.Time, s Stream, p []byte) int {
	// Concurrent writers and a set clock may bring an earlier time.
	millis := max(now.Sub(b.began).Milliseconds(), b.lastMillis)
	b.reserve(markMax + len(p))
	length := 0
	if s == b.lastStream && millis == b.lastMillis {
		length = int(binary.LittleEndian.Uint16(b.data[b.lastLength:]))
	}
	if length == 0 || length == recordMax {
		b.data = binary.AppendUvarint(b.data, uint64(millis-b.lastMillis)<<1|uint64(s-Stdout))
		b.data = append(b.data, 0, 0)
		b.lastStream, b.lastMillis, b.lastLength = s, millis, len(b.data)-lengthSize
		length = 0
	}
	n := min(len(p), b.limit-len(b.data), recordMax-length)
	b.data = append(b.data, p[:n]...)
	binary.LittleEndian.PutUint16(b.data[b.lastLength:], uint16(length+n))
	b.bytes += n
	return n
}

// seal completes the current block, if any.
func (c *Capture) seal() {
	if len(c.pending) == 0 {
		return
	}
	b := c.pending[len(c.pending)-1]
	if b.sealed {
		return
	}
	b.sealed = true
	if !c.closed {
		c.remember(b)
	}
	if b.tail && !c.uncounted {
		had := cap(b.data)
		b.data = appendLines(b.data, b.lines)
		c.hold(int64(cap(b.data) - had))
	}
	// Compression does not count, so that the kept part does not depend on the times of flushes.
	b.cost = chunkCost + len(b.data)
	if !b.tail {
		c.headLeft -= b.cost
		return
	}
	c.tailCost += b.cost
	for c.tailCost > c.collector.half { // a single block is far smaller
		c.leaveOut()
	}
}

// leaveOut drops the oldest block of the last half, which must be sealed.
func (c *Capture) leaveOut() {
	if len(c.tailSpans) > 0 {
		oldest := c.tailSpans[0]
		c.tailSpans = c.tailSpans[1:]
		c.tailCost -= int(oldest.cost)
		c.lost += int64(oldest.bytes)
		c.dropTo = int(oldest.seq) + 1
		return
	}
	oldest := c.pending[c.heads]
	c.pending = slices.Delete(c.pending, c.heads, c.heads+1)
	c.tailCost -= oldest.cost
	c.lost += int64(oldest.bytes)
	switch {
	case oldest.packed: // it may be stored or in flight
		c.dropTo = oldest.seq + 1
	case cap(oldest.data) > cap(c.spare):
		oldest.data, c.spare = c.spare, oldest.data
	}
	c.hold(-int64(cap(oldest.data)))
}

// pack converts a block to its stored form. Earlier blocks are packed already.
func (c *Capture) pack(b *block) {
	if b.packed {
		return
	}
	had := cap(b.data)
	b.data = compress(b.data)
	b.packed = true
	if c.number != nil && c.seq >= c.numbered {
		c.numbered = c.seq + numbersAhead
		c.number(c.numbered)
	}
	b.seq = c.seq
	c.seq++
	if !b.tail {
		c.dropFrom, c.dropTo = c.seq, c.seq
	}
	c.hold(int64(cap(b.data) - had))
}

// chunk returns the chunk of a packed block.
func (c *Capture) chunk(b *block) Chunk {
	dropFrom, dropTo := c.dropFrom, c.dropTo
	if b.number == 0 && c.replaces > 0 {
		dropFrom, dropTo = 0, c.replaces
	}
	return Chunk{
		Run:      c.run,
		Attempt:  c.attempt,
		Seq:      b.seq,
		Offset:   b.offset,
		Bytes:    b.bytes,
		Time:     b.began.Round(0).UTC(),
		Data:     b.data,
		DropFrom: dropFrom,
		DropTo:   dropTo,
	}
}

// take appends unstored blocks to chunks. It returns the number of the last one, for stored. The
// collector then calls either stored or retry.
func (c *Capture) take(chunks []Chunk) ([]Chunk, int64) {
	last := c.complete()
	for c.packNext(last) {
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.pending {
		if b.number <= last {
			chunks = append(chunks, c.chunk(b))
		}
	}
	return chunks, last
}

// complete seals the current block and returns its number.
func (c *Capture) complete() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty = false
	c.seal()
	c.hold(-int64(cap(c.spare)))
	c.spare = nil
	return c.blockCount - 1
}

// packNext packs the first unpacked block, one per call, so that a writer waits a quarter of a
// millisecond at most.
func (c *Capture) packNext(last int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.pending {
		if b.number <= last && !b.packed {
			c.pack(b)
			return true
		}
	}
	return false
}

// stored notes that the sink has the blocks up to last.
func (c *Capture) stored(last int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for ; n < len(c.pending) && c.pending[n].number <= last; n++ {
		b := c.pending[n]
		c.hold(-int64(cap(b.data)))
		if b.tail {
			c.tailSpans = append(c.tailSpans, span{int32(b.seq), int32(b.cost), int32(b.bytes)})
		}
	}
	c.pending = slices.Delete(c.pending, 0, n)
	c.heads = max(0, c.heads-n)
}

// retry makes the collector take the same blocks again.
func (c *Capture) retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && !c.dirty {
		c.dirty = true
		c.collector.enqueue(c)
	}
}
