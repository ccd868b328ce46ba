package kubeexec

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/remote/kube"
	"github.com/belfry-cron/belfry/store"
)

const (
	// readMax bounds what a poll reads of a log, beyond any log that a cluster keeps of a container.
	readMax = 256 << 20
	// chunksMax bounds the chunks that an earlier poll has stored without noting it.
	chunksMax = 1000
	// outputLimitMin is the least limit of package output.
	outputLimitMin = 8 << 10
)

// mark is how far the log of an attempt is stored.
type mark struct {
	// Time is that of the last stored line, and Same how many lines with it are stored.
	Time time.Time `json:"time,omitzero"`
	Same int       `json:"same,omitempty"`
	// Seq and Offset are those of the next chunk.
	Seq    int   `json:"seq,omitempty"`
	Offset int64 `json:"offset,omitempty"`
}

// reading collects the lines of a log behind a mark.
type reading struct {
	mark  mark
	same  int // lines seen with the time of the mark
	head  bytes.Buffer
	tail  []byte         // after the head, the last bytes of the log
	left  int            // bytes that the head still takes
	most  int            // bytes of the tail; 0 stops after the head
	extra int64          // bytes that the tail has dropped
	match *regexp.Regexp // nil without a pattern, and once a line has matched
	full  bool
}

// line takes a line with its time. It reports whether it wants more.
func (r *reading) line(line []byte) bool {
	stamp, text, ok := bytes.Cut(line, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	switch {
	case !ok || err != nil: // a message of the cluster in the log
		text = line
	case at.Before(r.mark.Time):
		return true
	case at.Equal(r.mark.Time):
		if r.same++; r.same <= r.mark.Same {
			return true
		}
		r.mark.Same++
	default:
		r.mark.Time, r.mark.Same, r.same = at, 1, 1
	}
	if r.match != nil && r.match.Match(bytes.TrimRight(text, "\r\n")) {
		r.match = nil
	}
	if !r.full && len(text) <= r.left {
		r.left -= len(text)
		r.head.Write(text)
		return true
	}
	r.full = true
	if r.most == 0 {
		return false
	}
	r.tail = append(r.tail, text...)
	if over := len(r.tail) - r.most; over > r.most { // cut seldom: each cut copies
		r.extra += int64(over)
		r.tail = append(r.tail[:0], r.tail[over:]...)
	}
	return true
}

// text returns what was read. It marks what is left out.
func (r *reading) text() []byte {
	if over := len(r.tail) - r.most; over > 0 {
		r.extra += int64(over)
		r.tail = r.tail[over:]
	}
	if r.extra > 0 {
		fmt.Fprintf(&r.head, "… %d bytes are left out …\n", r.extra)
	}
	r.head.Write(r.tail)
	return r.head.Bytes()
}

// read reads a log from a mark on. Unless it is final, half of the limit is read, and no line without an
// end.
func (e *Executor) read(ctx context.Context, c *kube.Client, a *about, pod string, final bool) (*reading, error) {
	half := max(e.config.OutputLimit, outputLimitMin) / 2
	r := &reading{mark: a.Log, left: max(0, half-int(a.Log.Offset))}
	if a.Match != "" && !a.Matched {
		var err error
		if r.match, err = regexp.Compile(a.Match); err != nil {
			return r, fmt.Errorf("policy.success.match: %w", err)
		}
	}
	if final {
		r.most = half
	} else if r.left == 0 {
		return r, nil
	}
	body, err := c.Log(ctx, a.Namespace, pod, a.Main, a.Log.Time)
	if err != nil {
		return r, err
	}
	defer body.Close()
	lines := bufio.NewReaderSize(io.LimitReader(body, readMax), 64<<10)
	var long []byte // the begin of a line that is longer than the buffer
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if len(long) < half {
				long = append(long, line...)
			}
			continue
		}
		whole := line
		if long != nil {
			whole = append(long, line...)
			long = nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return r, err
		}
		if len(whole) > 0 && (err == nil || final) && !r.line(whole) {
			return r, nil
		}
		if err != nil {
			return r, nil
		}
	}
}

// copyLog reads what is new in the log of an attempt, and returns it in chunks. An earlier poll may have
// stored some of it without noting how far.
func (e *Executor) copyLog(ctx context.Context, c *kube.Client, o *outstanding, pod string, final bool) ([]store.OutputChunk, error) {
	a := &o.about
	r, err := e.read(ctx, c, a, pod, final)
	text := r.text()
	if err != nil && len(text) == 0 {
		return nil, err
	}
	if len(text) == 0 {
		return nil, nil
	}
	stored, failure := e.config.Store.Output(ctx, o.Attempt.Run, o.Attempt.Number, a.Log.Seq, chunksMax)
	if failure != nil {
		return nil, fmt.Errorf("%w: %w", errStore, failure)
	}
	seq, offset := a.Log.Seq, a.Log.Offset
	for i := range stored {
		if stored[i].Seq >= seq {
			text = text[min(len(text), stored[i].Bytes):]
			seq, offset = stored[i].Seq+1, offset+int64(stored[i].Bytes)
		}
	}
	chunks, n := e.chunks(o, seq, offset, text)
	r.mark.Seq, r.mark.Offset = seq+len(chunks), offset+n
	a.Log, a.Matched = r.mark, a.Match != "" && r.match == nil
	if last := reason.LastLine(text, false); last != "" {
		a.Last = last
	}
	return chunks, err
}

// chunks packs a text into chunks.
func (e *Executor) chunks(o *outstanding, seq int, offset int64, text []byte) (chunks []store.OutputChunk, n int64) {
	if len(text) == 0 {
		return nil, 0
	}
	collector, err := output.New(output.Config{Sink: noSink{}, Limit: 2*len(text) + outputLimitMin})
	if err != nil {
		panic(err) // the limit is valid
	}
	capture := collector.Capture(o.Attempt.Run, o.Attempt.Number)
	_, _ = capture.Stdout().Write(text) // writes to captures succeed
	list, summary := capture.Close()
	for _, chunk := range list {
		chunk.Seq, chunk.Offset = seq+len(chunks), chunk.Offset+offset
		chunk.DropFrom, chunk.DropTo = 0, 0
		chunks = append(chunks, store.OutputChunk(chunk))
	}
	return chunks, summary.Bytes
}

// noSink is the sink of a collector that ships nothing.
type noSink struct{}

// Append implements [output.Sink].
func (noSink) Append(context.Context, []output.Chunk) error { return nil }
