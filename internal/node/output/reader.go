package output

import (
	"fmt"
	"time"
)

// Reader makes text of the chunks of an attempt. The zero Reader returns the output of both
// streams from the beginning, unchanged. Its methods are called from one goroutine.
type Reader struct {
	// Next is the offset to begin at and, after each Append, to continue from, as in [Chunk],
	// for any choice of streams. It may be used with another [Reader] later, even while the
	// attempt still writes.
	Next int64

	// Lines is how many lines of both streams end before Next, 0 for unknown unless Next is 0.
	Lines int64

	// Stream restricts the output to a stream. Default: both.
	Stream Stream

	// Since restricts the output to this time and later.
	Since time.Time

	// Times puts the time before each line, and | for stdout or ! for stderr. A line interrupted by
	// the other stream is broken, so that each line has its mark. A Next in the middle of a line
	// counts as a beginning.
	Times bool

	// Zone is the zone of the times. Default: UTC.
	Zone *time.Location

	inLine Stream // stream of an unfinished line
	open   Stream // the same, whatever is chosen
}

// Append appends the text of a chunk to dst, from Next. Chunks must come in the order of Seq. If
// one begins after Next, a line says what is missing. For a damaged chunk it appends the
// readable part and returns an error; Next is then after the chunk, and the next one may be read.
func (r *Reader) Append(dst []byte, chunk *Chunk) ([]byte, error) {
	if chunk.End() <= r.Next {
		return dst, nil
	}
	dst = r.Skip(dst, chunk)
	from, count := r.Next, lineCount{r.Lines, r.open}
	if r.Next == 0 || r.Lines > 0 {
		defer func() { r.Lines, r.open = count.ended, count.open }()
	}
	r.Next = chunk.End()
	for piece, err := range chunk.Pieces() {
		if err != nil {
			return dst, err
		}
		if skip := from - piece.Offset; skip > 0 {
			piece.Data = piece.Data[min(skip, int64(len(piece.Data))):]
		}
		if len(piece.Data) > 0 {
			count.add(piece.Stream, piece.Data)
		}
		if len(piece.Data) > 0 && (r.Stream == 0 || r.Stream == piece.Stream) && !piece.Time.Before(r.Since) {
			dst = r.piece(dst, piece)
		}
	}
	return dst, nil
}

// Skip appends the line that says what is missing before a chunk, if anything is. The rest of the chunk
// is read by Append.
func (r *Reader) Skip(dst []byte, chunk *Chunk) []byte {
	lost := chunk.Offset - r.Next
	if lost <= 0 {
		return dst
	}
	first := r.Lines + 1
	if r.open != 0 {
		first++ // its beginning is there
	}
	last, counted := chunk.linesBefore()
	counted = counted && (r.Next == 0 || r.Lines > 0)
	dst = r.breakLine(dst)
	switch {
	case counted && last > first:
		dst = fmt.Appendf(dst, "… lines %d to %d are missing (%s) …\n", first, last, size(lost))
	case counted && last == first:
		dst = fmt.Appendf(dst, "… line %d is missing (%s) …\n", first, size(lost))
	default:
		dst = fmt.Appendf(dst, "… %s left out …\n", size(lost))
	}
	r.Next, r.Lines, r.open = chunk.Offset, last, 0
	return dst
}

func (r *Reader) piece(dst []byte, p Piece) []byte {
	if !r.Times {
		dst = append(dst, p.Data...)
		r.inLine = p.Stream
		if dst[len(dst)-1] == '\n' {
			r.inLine = 0
		}
		return dst
	}
	if r.inLine != p.Stream {
		dst = r.breakLine(dst)
	}
	for _, b := range p.Data {
		if r.inLine == 0 {
			dst = r.mark(dst, p)
			r.inLine = p.Stream
		}
		dst = append(dst, b)
		if b == '\n' {
			r.inLine = 0
		}
	}
	return dst
}

// mark appends the mark of a line.
func (r *Reader) mark(dst []byte, p Piece) []byte {
	zone := r.Zone
	if zone == nil {
		zone = time.UTC
	}
	dst = p.Time.In(zone).AppendFormat(dst, "2006-01-02T15:04:05.000Z07:00")
	if p.Stream == Stderr {
		return append(dst, " ! "...)
	}
	return append(dst, " | "...)
}

// breakLine ends an unfinished line.
func (r *Reader) breakLine(dst []byte) []byte {
	if r.inLine != 0 {
		dst = append(dst, '\n')
		r.inLine = 0
	}
	return dst
}

// size formats a number of bytes: 999 bytes, 12.3 kB, 4.0 GB.
func size(bytes int64) string {
	switch {
	case bytes == 1:
		return "1 byte"
	case bytes < 1000:
		return fmt.Sprintf("%d bytes", bytes)
	}
	value, unit := float64(bytes)/1000, 0
	for value >= 999.95 && unit < len(units)-1 {
		value, unit = value/1000, unit+1
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

var units = []string{"kB", "MB", "GB", "TB", "PB", "EB"}
