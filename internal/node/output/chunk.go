package output

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Stream is one of the two streams of an attempt. As a choice, the zero Stream means both.
type Stream uint8

// The streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// String returns stdout or stderr.
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	default:
		return "both"
	}
}

// Chunk is a stored stretch of the output of an attempt. Run, Attempt and Seq are its key. Chunks
// of one attempt do not overlap, and their offsets rise with Seq. Missing numbers of Seq, and bytes
// between the end of a chunk and the offset of the next, were dropped.
type Chunk struct {
	Run     job.ID
	Attempt int
	Seq     int // from 0
	// Offset is the position of the first byte in the whole output of both streams, in the order of
	// writing. Dropping other parts does not change it.
	Offset int64
	// Bytes is the amount of output in Data: at least 1, at most [ChunkMax].
	Bytes int
	// Time is when the first byte was written, in UTC, to the millisecond.
	Time time.Time
	// Data is the output with its marks, possibly compressed; see Pieces. It must not be changed.
	Data []byte
	// DropFrom and DropTo tell the store to remove the attempt's chunks with DropFrom <= Seq <
	// DropTo: they have come to lie in the middle, which is not kept. The range, usually empty,
	// only grows from call to call, and has no chunk of its own call.
	DropFrom, DropTo int
}

// End returns the offset after the last byte.
func (c *Chunk) End() int64 { return c.Offset + int64(c.Bytes) }

// Unpacked returns the chunk with Data decompressed, to share among readers. A damaged
// chunk stays unchanged.
func (c Chunk) Unpacked() Chunk {
	if len(c.Data) == 0 || c.Data[0] == codecRaw {
		return c
	}
	if records, err := decompress(c.Data); err == nil {
		c.Data = append([]byte{codecRaw}, records...)
	}
	return c
}

// Sink keeps chunks: the history of a store.
//
// Append adds chunks of many attempts, in the order of Seq for each, and then removes the ranges that
// they drop. An existing chunk stays unchanged: it is repeated after a lost answer. No reader may see a
// chunk without the chunks of its attempt before it, of this or an earlier call, unless they are
// dropped. The chunks that [Capture.Close] returns are written in the same way, in one step with the
// result of the attempt.
//
// A call in flight during Close may arrive after the result. Close has made its chunks too, so that
// usually nothing changes; a chunk that they dropped comes back and exceeds the bound, which a store
// may avoid by refusing chunks of attempts with a result.
//
// A correct store never keeps more of an attempt than [Config.Limit] and one chunk. To read from an
// offset it returns the chunks whose End is greater, in the order of Seq.
type Sink interface {
	Append(ctx context.Context, chunks []Chunk) error
}

// The first byte of Data is the encoding of the rest. Its meaning never changes: chunks are kept
// for years.
const (
	codecRaw   = 0 // records
	codecFlate = 1 // records compressed as in RFC 1951
)

// A record is a mark and its data: the milliseconds since the previous record, or since
// Chunk.Time, doubled, plus one for stderr, as a varint; the length as two bytes,
// little-endian; that many bytes. A record without bytes, at the end, has in place of the
// milliseconds how many lines of both streams end before the chunk; earlier versions pass over it.
const (
	lengthSize = 2
	markMax    = binary.MaxVarintLen64 + lengthSize
	recordMax  = 1<<16 - 1
)

// ChunkMax is the limit of a chunk's records in bytes: large enough to compress well and to
// justify a row, small enough for the granularity of a bound.
const ChunkMax = 64 << 10

// rawMax is the limit of uncompressed records in bytes. Compressing 200 bytes costs 7 µs
// and saves 70 bytes, less than a row costs anyway; 512 bytes shrink to half in 11 µs.
const rawMax = 512

// linesMax bounds a count of lines, as a mark cannot hold more.
const linesMax = 1 << 42

// appendLines appends the record with the number of lines before a chunk.
func appendLines(data []byte, lines int64) []byte {
	data = binary.AppendUvarint(data, uint64(min(lines, linesMax))<<1)
	return append(data, 0, 0)
}

// lineCount counts the lines of both streams. A line ends where the other stream interrupts it.
type lineCount struct {
	ended int64
	open  Stream // of an unfinished line
}

// before returns how many lines end before output of a stream.
func (l *lineCount) before(s Stream) int64 {
	if l.open != 0 && l.open != s {
		return l.ended + 1
	}
	return l.ended
}

func (l *lineCount) add(s Stream, p []byte) {
	l.ended, l.open = l.before(s)+int64(bytes.Count(p, newline)), s
	if p[len(p)-1] == '\n' {
		l.open = 0
	}
}

var newline = []byte("\n")

// linesBefore returns how many lines end before the chunk, if it says so.
func (c *Chunk) linesBefore() (lines int64, ok bool) {
	for p, err := range c.records() {
		if err == nil && len(p.Data) == 0 {
			return p.lines, true
		}
	}
	return 0, false
}

// Piece is one write to a stream.
type Piece struct {
	Offset int64
	Time   time.Time
	Stream Stream
	Data   []byte
	lines  int64 // that end before the chunk; in a piece without data
}

// errDamaged is wrapped with the details.
var errDamaged = errors.New("the chunk is damaged")

// Pieces returns the content of the chunk, in the order of writing. It yields an error and no
// further piece if the chunk is damaged or of a later version.
func (c *Chunk) Pieces() iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		for p, err := range c.records() {
			if (err != nil || len(p.Data) > 0) && !yield(p, err) {
				return
			}
		}
	}
}

// records returns the content like Pieces, and the count of lines as a piece without data.
func (c *Chunk) records() iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		fail := func(err error) {
			yield(Piece{}, fmt.Errorf("read output %d of run %v, attempt %d: %w", c.Seq, c.Run, c.Attempt, err))
		}
		records, err := decompress(c.Data)
		if err != nil {
			fail(err)
			return
		}
		p := Piece{Offset: c.Offset, Time: c.Time}
		for len(records) > 0 {
			mark, n := binary.Uvarint(records)
			// A century of milliseconds fits well; more would overflow a time.
			if n <= 0 || mark>>1 > 1<<42 || len(records) < n+lengthSize {
				fail(fmt.Errorf("%w: a mark is cut off", errDamaged))
				return
			}
			length := int(binary.LittleEndian.Uint16(records[n:]))
			records = records[n+lengthSize:]
			if length > len(records) {
				fail(fmt.Errorf("%w: a record is cut off", errDamaged))
				return
			}
			if length == 0 {
				if !yield(Piece{Offset: p.Offset, Time: p.Time, Stream: Stdout, lines: int64(mark >> 1)}, nil) {
					return
				}
				continue
			}
			p.Time = p.Time.Add(time.Duration(mark>>1) * time.Millisecond)
			p.Stream = Stdout + Stream(mark&1)
			p.Data = records[:length:length]
			if !yield(p, nil) {
				return
			}
			records = records[length:]
			p.Offset += int64(length)
		}
		if p.Offset != c.End() {
			fail(fmt.Errorf("%w: it has %d bytes of output instead of %d", errDamaged, p.Offset-c.Offset, c.Bytes))
		}
	}
}

// deflaters are compressors with their memory, over half a megabyte each.
var deflaters = sync.Pool{New: func() any {
	d := &deflater{}
	d.writer, _ = flate.NewWriter(&d.out, flate.BestSpeed) // the level is valid
	return d
}}

type deflater struct {
	writer *flate.Writer
	out    bytes.Buffer
}

// compress returns data, which begins with codecRaw, in its shortest form, unchanged if compression
// gains little. Level 1 reduces a log to 26 % at 260 MB/s; level 6 to 20 % at 40 MB/s.
func compress(data []byte) []byte {
	if len(data) <= rawMax {
		return data
	}
	d := deflaters.Get().(*deflater)
	defer deflaters.Put(d)
	d.out.Reset()
	d.out.WriteByte(codecFlate)
	d.writer.Reset(&d.out)
	d.writer.Write(data[1:]) // writes to a buffer succeed
	d.writer.Close()
	if d.out.Len() > len(data)-len(data)/8 {
		return data
	}
	return bytes.Clone(d.out.Bytes())
}

// decompress returns the records in data.
func decompress(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: it is empty", errDamaged)
	}
	switch data[0] {
	case codecRaw:
		return data[1:], nil
	case codecFlate:
		var records bytes.Buffer
		_, err := records.ReadFrom(io.LimitReader(flate.NewReader(bytes.NewReader(data[1:])), ChunkMax+1))
		if err == nil && records.Len() > ChunkMax {
			err = errors.New("it is too long")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		return records.Bytes(), nil
	default:
		return nil, fmt.Errorf("it is written in form %d, which this version does not know", data[0])
	}
}
