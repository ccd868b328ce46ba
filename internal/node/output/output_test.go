package output_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is a sink that obeys its contract, and checks that the collector does, too.
type shelf struct {
	t testing.TB
	// before may refuse or delay a call, after may lose its answer.
	before, after func(context.Context) error

	mu       sync.Mutex
	calls    int
	attempts map[job.ID]*attempt
}

type attempt struct {
	chunks []output.Chunk // in the order of Seq
	last   int            // the highest Seq so far
	drop   int
}

func newShelf(t testing.TB) *shelf { return &shelf{t: t, attempts: map[job.ID]*attempt{}} }

func (s *shelf) Append(ctx context.Context, chunks []output.Chunk) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.before != nil {
		if err := s.before(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.calls++
	s.keep(chunks)
	s.mu.Unlock()
	if s.after != nil {
		return s.after(ctx)
	}
	return nil
}

func (s *shelf) keep(chunks []output.Chunk) {
	for _, c := range chunks {
		a := s.attempts[c.Run]
		if a == nil {
			a = &attempt{last: -1}
			s.attempts[c.Run] = a
		}
		if i, found := slices.BinarySearchFunc(a.chunks, c.Seq, func(c output.Chunk, seq int) int { return c.Seq - seq }); found {
			if old := a.chunks[i]; old.Offset != c.Offset || old.Bytes != c.Bytes || !bytes.Equal(old.Data, c.Data) {
				s.t.Errorf("chunk %d came again with other content", c.Seq)
			}
		} else {
			if c.Seq <= a.last && c.Seq >= a.drop {
				s.t.Errorf("chunk %d came after %d", c.Seq, a.last)
			}
			n := len(a.chunks)
			replaced := n > 0 && c.DropFrom == 0 && a.chunks[n-1].Seq < c.DropTo // the output is read again
			if n > 0 && !replaced && a.chunks[n-1].End() > c.Offset {
				s.t.Errorf("chunk %d overlaps the one before", c.Seq)
			}
			a.chunks = append(a.chunks, c)
			a.last = max(a.last, c.Seq)
		}
		if c.DropFrom <= c.Seq && c.Seq < c.DropTo || c.DropTo < a.drop {
			s.t.Errorf("chunk %d drops up to %d, after %d", c.Seq, c.DropTo, a.drop)
		}
		a.drop = c.DropTo
		a.chunks = slices.DeleteFunc(a.chunks, func(old output.Chunk) bool { return c.DropFrom <= old.Seq && old.Seq < c.DropTo })
	}
}

// chunks returns what is stored of a run.
func (s *shelf) chunks(run job.ID) []output.Chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.attempts[run]; a != nil {
		return slices.Clone(a.chunks)
	}
	return nil
}

func (s *shelf) text(run job.ID) string { return read(s.t, &output.Reader{}, s.chunks(run)...) }

func read(t testing.TB, r *output.Reader, chunks ...output.Chunk) string {
	t.Helper()
	var text []byte
	for i := range chunks {
		var err error
		if text, err = r.Append(text, &chunks[i]); err != nil {
			t.Error(err)
		}
	}
	return string(text)
}

func collector(t testing.TB, config output.Config) *output.Collector {
	t.Helper()
	if config.Sink == nil {
		config.Sink = newShelf(t)
	}
	c, err := output.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start runs a collector until the returned function is called.
func start(c *output.Collector) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

var run1, run2 = job.ID{15: 1}, job.ID{15: 2}

func TestShortOutputIsReturnedByClose(t *testing.T) {
	c := collector(t, output.Config{}).Capture(run1, 2)
	fmt.Fprintln(c.Stdout(), "copied 12 rows")
	fmt.Fprintln(c.Stderr(), "one was empty")

	chunks, summary := c.Close()
	if len(chunks) != 1 || chunks[0].Run != run1 || chunks[0].Attempt != 2 || chunks[0].Seq != 0 || chunks[0].Bytes != 29 {
		t.Fatalf("got %+v", chunks)
	}
	if len(chunks[0].Data) > 29+10 {
		t.Errorf("29 bytes are stored as %d", len(chunks[0].Data))
	}
	if got := read(t, &output.Reader{}, chunks...); got != "copied 12 rows\none was empty\n" {
		t.Errorf("got %q", got)
	}
	if summary != (output.Summary{Bytes: 29, Kept: 29}) {
		t.Errorf("got %+v", summary)
	}

	n, err := c.Stdout().Write([]byte("too late"))
	if n != 8 || err != nil {
		t.Errorf("a write after the end: %d, %v", n, err)
	}
	if chunks, again := c.Close(); chunks != nil || again != summary {
		t.Errorf("closed again: %v, %v", chunks, again)
	}
}

func TestEmptyOutputHasNoChunk(t *testing.T) {
	c := collector(t, output.Config{}).Capture(run1, 1)
	c.Stdout().Write(nil)
	if chunks, summary := c.Close(); len(chunks) != 0 || summary != (output.Summary{}) {
		t.Errorf("got %v, %v", chunks, summary)
	}
}

func TestOutputIsReadableWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf(t)
		collector := collector(t, output.Config{Sink: shelf})
		stop := start(collector)
		defer stop()
		c := collector.Capture(run1, 1)
		var want string
		for i := range 20 {
			line := fmt.Sprintf("line %d\n", i)
			want += line
			c.Stdout().Write([]byte(line))
			time.Sleep(time.Second)
			synctest.Wait()
			if got := shelf.text(run1); got != want {
				t.Fatalf("a second after line %d: %q", i, got)
			}
		}
		if chunks, _ := c.Close(); len(chunks) != 0 {
			t.Errorf("%d chunks are left after all was stored", len(chunks))
		}
	})
}

func TestShortAttemptIsNotFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf(t)
		collector := collector(t, output.Config{Sink: shelf})
		stop := start(collector)
		defer stop()
		long := collector.Capture(run2, 1)
		for range 100 {
			c := collector.Capture(run1, 1)
			c.Stdout().Write([]byte("done\n"))
			time.Sleep(300 * time.Millisecond)
			if chunks, _ := c.Close(); len(chunks) != 1 {
				t.Fatalf("got %d chunks", len(chunks))
			}
			long.Stdout().Write([]byte("still at it\n"))
		}
		long.Close()
		if shelf.calls == 0 || shelf.chunks(run1) != nil {
			t.Errorf("the sink was called %d times, and has %v", shelf.calls, shelf.chunks(run1))
		}
	})
}

func TestManyAttemptsAreFlushedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf(t)
		collector := collector(t, output.Config{Sink: shelf})
		stop := start(collector)
		for i := range 1200 {
			c := collector.Capture(job.ID{0: byte(i >> 8), 1: byte(i)}, 1)
			c.Stdout().Write([]byte("working\n"))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(shelf.attempts) != 1200 || shelf.calls != 3 {
			t.Errorf("%d attempts are stored by %d calls", len(shelf.attempts), shelf.calls)
		}
		stop()
	})
}

func TestStopFlushesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf(t)
		collector := collector(t, output.Config{Sink: shelf})
		stop := start(collector)
		c := collector.Capture(run1, 1)
		c.Stdout().Write([]byte("just now\n"))
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := shelf.text(run1); got != "just now\n" {
			t.Errorf("got %q", got)
		}
		c.Stdout().Write([]byte("after the end\n"))
		chunks, _ := c.Close()
		shelf.keep(chunks)
		if got := shelf.text(run1); got != "just now\nafter the end\n" {
			t.Errorf("got %q", got)
		}
	})
}

func TestStopReturnsTheErrorOfTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf(t)
		full := errors.New("disk full")
		shelf.before = func(context.Context) error { return full }
		collector := collector(t, output.Config{Sink: shelf})
		stop := start(collector)
		c := collector.Capture(run1, 1)
		c.Stdout().Write([]byte("kept\n"))
		if err := stop(); !errors.Is(err, full) {
			t.Errorf("got %v", err)
		}
		if chunks, _ := c.Close(); read(t, &output.Reader{}, chunks...) != "kept\n" {
			t.Errorf("got %v", chunks)
		}
	})
}

func TestHeadAndTailAreKept(t *testing.T) {
	const limit = 64 << 10
	shelf := newShelf(t)
	c := collector(t, output.Config{Sink: shelf, Limit: limit}).Capture(run1, 1)
	var all bytes.Buffer
	for i := range 100_000 {
		fmt.Fprintf(&all, "line %d\n", i)
	}
	for rest := all.Bytes(); len(rest) > 0; rest = rest[min(1000, len(rest)):] {
		c.Stdout().Write(rest[:min(1000, len(rest))])
	}
	chunks, summary := c.Close()
	shelf.keep(chunks)
	head, tail, cut := strings.Cut(shelf.text(run1), "… ")
	if !cut {
		t.Fatal("the cut is not marked")
	}
	if !strings.HasPrefix(all.String(), head) {
		head = strings.TrimSuffix(head, "\n") // which the cut has ended
	}
	mark, tail, _ := strings.Cut(tail, "\n")
	from, to := strings.Count(head, "\n")+1, 100_000-strings.Count(tail, "\n")
	if !strings.HasSuffix(head, "\n") {
		from++ // of this line the beginning is kept, and of one the end
	}
	if want := fmt.Sprintf("lines %d to %d are missing (1.0 MB) …", from, to); mark != want {
		t.Errorf("the cut is marked %q, not %q", mark, want)
	}
	if !strings.HasPrefix(all.String(), head) || !strings.HasSuffix(all.String(), tail) {
		t.Error("what is kept is not the beginning and the end")
	}
	const half, chunk = limit / 2, limit / 16
	if len(head) < half-chunk || len(head) > half || len(tail) < half-chunk || len(tail) > half {
		t.Errorf("kept are %d and %d bytes", len(head), len(tail))
	}
	if summary.Bytes != int64(all.Len()) || summary.Kept+summary.Lost != summary.Bytes {
		t.Errorf("%+v of %d bytes", summary, all.Len())
	}
	// A line that the cut breaks is ended, which is one byte more.
	if kept := int64(len(head) + len(tail)); summary.Kept != kept {
		t.Errorf("%d bytes are kept, the summary says %d", kept, summary.Kept)
	}
}

// TestKeptOutputMatchesAModel writes at random while the sink fails at random, and compares the
// stored output with the written one.
func TestKeptOutputMatchesAModel(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compareWithModel(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

type written struct {
	at     time.Time
	stream output.Stream
	data   []byte
}

func compareWithModel(t *testing.T, random *rand.Rand) {
	const limit = 32 << 10
	shelf := newShelf(t)
	failures := random.IntN(4)                          // of eight calls
	faults := rand.New(rand.NewPCG(random.Uint64(), 0)) // for the goroutine of Run
	fail := func(context.Context) error {
		if faults.IntN(8) < failures {
			return errors.New("no answer")
		}
		return nil
	}
	shelf.before, shelf.after = fail, fail
	config := output.Config{Sink: shelf, Limit: limit}
	first := collector(t, config)
	stop := start(first)
	c := first.Capture(run1, 1)
	carries := random.IntN(2) == 0

	var all []byte
	var pieces []written
	var streams []output.Stream // of each byte
	writes, size := random.IntN(300), 1+random.IntN(3000)
	pause := []time.Duration{0, 3 * time.Millisecond, 200 * time.Millisecond}[random.IntN(3)]
	for range writes {
		data := make([]byte, random.IntN(size))
		for i := range data {
			data[i] = byte('a' + random.IntN(26))
			if random.IntN(40) == 0 {
				data[i] = '\n'
			}
		}
		w := written{time.Now(), output.Stdout, data}
		if random.IntN(3) == 0 {
			w.stream = output.Stderr
			c.Stderr().Write(data)
		} else {
			c.Stdout().Write(data)
		}
		all = append(all, data...)
		pieces = append(pieces, w)
		streams = append(streams, slices.Repeat([]output.Stream{w.stream}, len(data))...)
		time.Sleep(time.Duration(random.Int64N(int64(pause) + 1)))
		if carries && random.IntN(40) == 0 {
			state, err := json.Marshal(c.Carry())
			_ = stop() // refused output is carried over
			var carried output.State
			if err := errors.Join(err, json.Unmarshal(state, &carried)); err != nil {
				t.Fatal(err)
			}
			next := collector(t, config)
			stop, c = start(next), next.Resume(run1, 1, carried)
		}
	}
	for _, stream := range []output.Stream{output.Stdout, output.Stderr} {
		var want []byte
		for i := range all {
			if streams[i] == stream {
				want = append(want, all[i])
			}
		}
		got, cut := c.End(stream)
		if rest := want[max(0, len(want)-reason.CauseLook):]; !bytes.Equal(got, rest) || cut != (len(rest) < len(want)) {
			t.Errorf("the end of %v has %d bytes, cut %v, of %d", stream, len(got), cut, len(want))
		}
	}
	chunks, summary := c.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
	shelf.keep(chunks)

	var next, lost, stored int64
	cuts := 0
	for _, chunk := range shelf.chunks(run1) {
		if chunk.Offset != next {
			cuts++
			lost += chunk.Offset - next
			if next < limit/4 && len(shelf.chunks(run1)) < limit/2/200 {
				t.Errorf("the first half has only %d bytes", next)
			}
		}
		if len(chunk.Data) > output.ChunkMax || int(chunk.Bytes) > len(chunk.Data) && chunk.Data[0] == 0 {
			t.Errorf("chunk %d has %d bytes", chunk.Seq, len(chunk.Data))
		}
		stored += int64(chunk.Bytes)
		next = chunk.End()
		for piece, err := range chunk.Pieces() {
			if err != nil {
				t.Fatal(err)
			}
			end := piece.Offset + int64(len(piece.Data))
			if !bytes.Equal(piece.Data, all[piece.Offset:end]) {
				t.Fatalf("%d bytes at %d are not those that were written", len(piece.Data), piece.Offset)
			}
			for _, s := range streams[piece.Offset:end] {
				if s != piece.Stream {
					t.Fatalf("a piece at %d is of another stream", piece.Offset)
				}
			}
			for _, offset := range []int64{piece.Offset, end - 1} {
				if want := timeAt(pieces, offset).Truncate(time.Millisecond); !piece.Time.Equal(want) {
					t.Fatalf("the byte at %d is of %v, not %v", offset, piece.Time, want)
				}
			}
		}
	}
	reader := output.Reader{}
	for _, chunk := range shelf.chunks(run1) {
		if chunk.Offset != reader.Next {
			reader.Skip(nil, &chunk)
			if want := linesBefore(all, streams, int(chunk.Offset)); reader.Lines != want {
				t.Errorf("%d lines end before offset %d, not %d", want, chunk.Offset, reader.Lines)
			}
		}
		if _, err := reader.Append(nil, &chunk); err != nil {
			t.Error(err)
		}
	}
	if next != int64(len(all)) {
		t.Errorf("the last %d bytes are missing", int64(len(all))-next)
	}
	if cuts > 1 {
		t.Errorf("there are %d cuts", cuts)
	}
	if len(all)+64*len(pieces)*2 < limit/2 && lost > 0 {
		t.Errorf("%d bytes of %d are left out", lost, len(all))
	}
	if stored > limit {
		t.Errorf("%d bytes are stored", stored)
	}
	if want := (output.Summary{Bytes: int64(len(all)), Kept: stored, Lost: lost}); summary != want {
		t.Errorf("the summary is %+v, not %+v", summary, want)
	}
}

// linesBefore returns how many lines end before an offset.
func linesBefore(all []byte, streams []output.Stream, offset int) (lines int64) {
	for i := range offset {
		if all[i] == '\n' || i+1 < len(all) && streams[i+1] != streams[i] {
			lines++
		}
	}
	return lines
}

// timeAt returns when the byte at an offset was written.
func timeAt(pieces []written, offset int64) time.Time {
	for _, w := range pieces {
		if offset < int64(len(w.data)) {
			return w.at
		}
		offset -= int64(len(w.data))
	}
	panic("beyond the end")
}

func TestSlowSinkBlocksNoWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf(t)
		shelf.before = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		collector := collector(t, output.Config{Sink: shelf, Limit: 64 << 10})
		stop := start(collector)
		c := collector.Capture(run1, 1)
		began := time.Now()
		page := bytes.Repeat([]byte("0123456789abcde\n"), 256)
		for range 1000 {
			c.Stdout().Write(page)
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took != 100*time.Second {
			t.Errorf("writing took %v", took)
		}
		chunks, summary := c.Close()
		if summary.Bytes != 1000*4096 || summary.Kept > 64<<10 || summary.Kept < 56<<10 {
			t.Errorf("got %+v", summary)
		}
		if got := read(t, &output.Reader{}, chunks...); !strings.HasSuffix(got, string(page)) {
			t.Error("the end is missing")
		}
		stop()
	})
}

func TestSinkFailureIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf(t)
		var trouble atomic.Bool
		trouble.Store(true)
		shelf.before = func(context.Context) error {
			if trouble.Load() {
				return errors.New("disk full")
			}
			return nil
		}
		var log bytes.Buffer
		collector := collector(t, output.Config{Sink: shelf, Log: slog.New(slog.NewTextHandler(&log, nil))})
		stop := start(collector)
		c := collector.Capture(run1, 1)
		c.Stdout().Write([]byte("kept\n"))
		time.Sleep(time.Minute)
		trouble.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := shelf.text(run1); got != "kept\n" {
			t.Errorf("got %q", got)
		}
		for range 20 {
			c.Stdout().Write([]byte("on it goes\n"))
			time.Sleep(time.Second)
		}
		stop()
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "disk full") || !strings.Contains(got, "stored again") {
			t.Errorf("logged is\n%s", got)
		}
	})
}

func TestFailingSinkBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf(t)
		calls := 0
		shelf.before = func(context.Context) error { calls++; return errors.New("disk full") }
		collector := collector(t, output.Config{Sink: shelf})
		stop := start(collector)
		for i := range 5000 {
			collector.Capture(job.ID{0: byte(i >> 8), 1: byte(i)}, 1).Stdout().Write([]byte("working\n"))
		}
		time.Sleep(time.Minute)
		stop()
		if calls < 30 || calls > 62 {
			t.Errorf("it was called %d times in a minute", calls)
		}
	})
}

func TestRefusedAttemptBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf(t)
		picky := pickySink{shelf, run1}
		collector := collector(t, output.Config{Sink: picky})
		stop := start(collector)
		refused := collector.Capture(run1, 1)
		var captures []*output.Capture
		for i := range 100 {
			captures = append(captures, collector.Capture(job.ID{0: byte(i), 1: 1}, 1))
		}
		for range 60 {
			refused.Stdout().Write([]byte("x"))
			for _, c := range captures {
				c.Stdout().Write([]byte("x"))
			}
			time.Sleep(time.Second)
		}
		for i := range captures {
			if n := len(shelf.text(job.ID{0: byte(i), 1: 1})); n < 40 {
				t.Errorf("attempt %d is %d seconds behind", i, 60-n)
			}
		}
		if chunks, _ := refused.Close(); len(read(t, &output.Reader{}, chunks...)) != 60 {
			t.Error("of the refused attempt not all is handed out")
		}
		stop()
	})
}

// pickySink refuses batches with chunks of one run.
type pickySink struct {
	*shelf
	refused job.ID
}

func (s pickySink) Append(ctx context.Context, chunks []output.Chunk) error {
	if slices.ContainsFunc(chunks, func(c output.Chunk) bool { return c.Run == s.refused }) {
		return errors.New("there is no such run")
	}
	return s.shelf.Append(ctx, chunks)
}

func TestTotalMemoryIsBounded(t *testing.T) {
	const memory, runs, limit = 1 << 20, 200, 64 << 10
	collector := collector(t, output.Config{Limit: limit, MemoryMax: memory})
	quiet := collector.Capture(run2, 1)
	quiet.Stdout().Write([]byte("I say little\n"))
	var captures []*output.Capture
	page := bytes.Repeat([]byte("0123456789abcde\n"), 256)
	for i := range runs {
		c := collector.Capture(job.ID{0: byte(i)}, 1)
		for range 100 {
			c.Stdout().Write(page)
		}
		captures = append(captures, c)
	}
	for range 10 {
		quiet.Stdout().Write(page[:1024])
	}
	if held, most := collector.Held(), int64(memory+runs*4*limit/16); held > most {
		t.Errorf("%d bytes are held, more than %d", held, most)
	}
	for _, c := range captures {
		chunks, summary := c.Close()
		if got := read(t, &output.Reader{}, chunks...); !strings.HasSuffix(got, "abcde\n") || summary.Kept == 0 {
			t.Error("the end is missing")
		}
	}
	if chunks, summary := quiet.Close(); summary.Lost != 0 || len(chunks) != 3 {
		t.Errorf("of little %+v", summary)
	}
	if held := collector.Held(); held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
}

func TestSlowOutputMakesABoundedNumberOfChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf(t)
		collector := collector(t, output.Config{Sink: shelf, Limit: 8 << 10})
		stop := start(collector)
		c := collector.Capture(run1, 1)
		for range 3600 {
			c.Stdout().Write([]byte("."))
			time.Sleep(time.Second)
		}
		if n := len(shelf.chunks(run1)); n < 100 || n > 8<<10/64 {
			t.Errorf("an hour of dots is in %d chunks", n)
		}
		c.Close()
		stop()
	})
}

func TestTimesKeepTheirOrderWhenTheClockIsSetBack(t *testing.T) {
	now := time.Date(2026, 11, 20, 2, 30, 0, 0, time.UTC)
	c := collector(t, output.Config{Now: func() time.Time { now = now.Add(-time.Hour); return now }}).Capture(run1, 1)
	c.Stdout().Write([]byte("a\n"))
	c.Stderr().Write([]byte("b\n"))
	chunks, _ := c.Close()
	if got, want := read(t, &output.Reader{Times: true}, chunks...), "2026-11-20T01:30:00.000Z | a\n2026-11-20T01:30:00.000Z ! b\n"; got != want {
		t.Errorf("got %q", got)
	}
}

func TestOutputIsReadableWithinASecondWhenTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf(t)
		now := time.Now()
		collector := collector(t, output.Config{Sink: shelf, Now: func() time.Time { return now }})
		stop := start(collector)
		defer stop()
		c := collector.Capture(run1, 1)
		defer c.Close()
		c.Stdout().Write([]byte("before\n"))
		now = now.Add(-time.Hour)
		c.Stdout().Write([]byte("after\n"))
		time.Sleep(time.Second)
		synctest.Wait()
		if got := shelf.text(run1); got != "before\nafter\n" {
			t.Errorf("got %q", got)
		}
	})
}

func TestStreamsMayBeWrittenConcurrently(t *testing.T) {
	shelf := newShelf(t)
	collector := collector(t, output.Config{Sink: shelf})
	stop := start(collector)
	c := collector.Capture(run1, 1)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for range 1000 {
				c.Stdout().Write([]byte("out\n"))
			}
		})
		group.Go(func() {
			for range 1000 {
				c.Stderr().Write([]byte("err\n"))
			}
		})
	}
	group.Wait()
	if err := stop(); err != nil {
		t.Error(err)
	}
	chunks, _ := c.Close()
	shelf.keep(chunks)
	if got := read(t, &output.Reader{Stream: output.Stderr}, shelf.chunks(run1)...); got != strings.Repeat("err\n", 2000) {
		t.Errorf("%d bytes of stderr, or mixed ones", len(got))
	}
}

func TestNewRefusesBadConfigurations(t *testing.T) {
	if _, err := output.New(output.Config{}); err == nil {
		t.Error("no sink")
	}
	if _, err := output.New(output.Config{Sink: newShelf(t), Limit: 100}); err == nil {
		t.Error("a tiny limit")
	}
}

func TestOutputThatIsReadAgainReplacesTheStoredOne(t *testing.T) {
	for _, lines := range []int{1, 3000} {
		synctest.Test(t, func(t *testing.T) {
			shelf := newShelf(t)
			config := output.Config{Sink: shelf, Limit: 64 << 10}
			below := 0
			write := func(c *output.Capture, lines int) {
				c.NumberChunks(func(b int) { below = b })
				for i := range lines {
					fmt.Fprintf(c.Stdout(), "line %d of the output\n", i)
					if i%500 == 0 {
						time.Sleep(time.Second)
					}
				}
			}
			first := collector(t, config)
			stop, c := start(first), first.Capture(run1, 1)
			write(c, lines-lines/3)
			time.Sleep(time.Second)
			stop() // and the process is killed
			for _, chunk := range shelf.chunks(run1) {
				if chunk.Seq >= below {
					t.Errorf("chunk %d has a number that was not told; told was %d", chunk.Seq, below)
				}
			}
			next := collector(t, config)
			stop, c = start(next), next.Resume(run1, 1, next.Anew(below))
			write(c, lines)
			chunks, _ := c.Close()
			stop()
			shelf.mu.Lock()
			shelf.keep(chunks)
			shelf.mu.Unlock()
			var text []byte
			reader := output.Reader{}
			for _, chunk := range shelf.chunks(run1) {
				var err error
				if text, err = reader.Append(text, &chunk); err != nil {
					t.Error(err)
				}
			}
			if got := string(text); strings.Count(got, "line 0 of") != 1 || strings.Count(got, fmt.Sprintf("line %d of", lines-1)) != 1 || strings.Contains(got, "missing") != (lines > 1) {
				t.Errorf("of %d lines the store has\n%.200s … %s", lines, got, got[max(0, len(got)-200):])
			}
		})
	}
}
