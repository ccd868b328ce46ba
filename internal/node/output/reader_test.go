package output_test

import (
	"bytes"
	"compress/flate"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/job"
)

// sample is output with two streams, two times and a broken line.
func sample(t testing.TB) output.Chunk {
	now := time.Date(2026, 11, 20, 2, 30, 0, 0, time.UTC)
	c := collector(t, output.Config{Now: func() time.Time { return now }}).Capture(run1, 1)
	fmt.Fprint(c.Stdout(), "one\ntwo, ")
	now = now.Add(1500 * time.Millisecond)
	fmt.Fprint(c.Stderr(), "careful\n")
	fmt.Fprint(c.Stdout(), "and three\n")
	chunks, _ := c.Close()
	return chunks[0]
}

func TestReaderShowsStoredOutput(t *testing.T) {
	chunk := sample(t)
	later := chunk
	later.Seq, later.Offset = 9, 12_345_678
	for _, test := range []struct {
		name   string
		reader output.Reader
		chunks []output.Chunk
		want   string
	}{
		{"what was written", output.Reader{}, []output.Chunk{chunk}, "one\ntwo, careful\nand three\n"},
		{"since a time", output.Reader{Since: time.Date(2026, 11, 20, 2, 30, 0, 1, time.UTC)}, []output.Chunk{chunk}, "careful\nand three\n"},
		{"since the time of a write", output.Reader{Since: time.Date(2026, 11, 20, 2, 30, 1, 500e6, time.UTC)}, []output.Chunk{chunk}, "careful\nand three\n"},
		{"since the end", output.Reader{Since: time.Date(2026, 11, 20, 2, 30, 2, 0, time.UTC)}, []output.Chunk{chunk}, ""},
		{"stdout", output.Reader{Stream: output.Stdout}, []output.Chunk{chunk}, "one\ntwo, and three\n"},
		{"stderr", output.Reader{Stream: output.Stderr}, []output.Chunk{chunk}, "careful\n"},
		{"times", output.Reader{Times: true}, []output.Chunk{chunk},
			"2026-11-20T02:30:00.000Z | one\n" +
				"2026-11-20T02:30:00.000Z | two, \n" +
				"2026-11-20T02:30:01.500Z ! careful\n" +
				"2026-11-20T02:30:01.500Z | and three\n"},
		{"times of one stream, whose lines are whole", output.Reader{Times: true, Stream: output.Stdout, Zone: time.FixedZone("", 8*3600)}, []output.Chunk{chunk},
			"2026-11-20T10:30:00.000+08:00 | one\n2026-11-20T10:30:00.000+08:00 | two, and three\n"},
		{"from an offset", output.Reader{Next: 9}, []output.Chunk{chunk}, "careful\nand three\n"},
		{"from within a piece", output.Reader{Next: 6}, []output.Chunk{chunk}, "o, careful\nand three\n"},
		{"nothing of a chunk that was read", output.Reader{Next: 27}, []output.Chunk{chunk}, ""},
		{"a chunk that comes twice once", output.Reader{}, []output.Chunk{chunk, chunk}, "one\ntwo, careful\nand three\n"},
		{"earlier chunks that come again once", output.Reader{Stream: output.Stderr}, []output.Chunk{chunk, later, chunk, later}, "careful\n… 12.3 MB left out …\ncareful\n"},
		{"the cut", output.Reader{Stream: output.Stderr}, []output.Chunk{chunk, later}, "careful\n… 12.3 MB left out …\ncareful\n"},
		{"a cut at the beginning", output.Reader{Next: 12_345_677}, []output.Chunk{later}, "… 1 byte left out …\none\ntwo, careful\nand three\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := read(t, &test.reader, test.chunks...); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestReadingInStepsGivesTheSame(t *testing.T) {
	chunk := sample(t)
	whole := read(t, &output.Reader{}, chunk)
	for from := range int64(len(whole)) + 1 {
		r := output.Reader{Next: from}
		if got := read(t, &r, chunk); got != whole[from:] || r.Next != chunk.End() {
			t.Errorf("from %d: %q, next %d", from, got, r.Next)
		}
	}
}

func TestCutBreaksAnUnfinishedLine(t *testing.T) {
	c := collector(t, output.Config{}).Capture(run1, 1)
	fmt.Fprint(c.Stdout(), "unfinished")
	chunks, _ := c.Close()
	later := chunks[0]
	later.Seq, later.Offset = 5, 1_000_000
	if got, want := read(t, &output.Reader{}, chunks[0], later), "unfinished\n… 1.0 MB left out …\nunfinished"; got != want {
		t.Errorf("got %q", got)
	}
}

// TestStoredFormStaysReadable reads chunks in the form that users have in their stores.
func TestStoredFormStaysReadable(t *testing.T) {
	raw := sample(t)
	if got, want := hex.EncodeToString(raw.Data), "00"+
		"00"+"0900"+"6f6e650a74776f2c20"+
		"b917"+"0800"+"6361726566756c0a"+
		"00"+"0a00"+"616e642074687265650a"; got != want {
		t.Errorf("the raw form is now\n%s", got)
	}
	compressed := output.Chunk{Bytes: 600, Data: unhex(t, "01638c604a1c05a380060000")}
	if got := readWith(&output.Reader{Stream: output.Stderr}, &compressed); got.err != nil || got.text != strings.Repeat("a", 600) {
		t.Errorf("the compressed form is read as %q, %v", got.text, got.err)
	}
}

func unhex(t *testing.T, text string) []byte {
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type result struct {
	text string
	err  error
}

func readWith(r *output.Reader, c *output.Chunk) result {
	text, err := r.Append(nil, c)
	return result{string(text), err}
}

func TestDamagedChunkIsSkipped(t *testing.T) {
	good := sample(t)
	var bomb bytes.Buffer
	bomb.WriteByte(1)
	w, err := flate.NewWriter(&bomb, 9)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(make([]byte, 1<<20))
	w.Close()
	for _, test := range []struct {
		name, want string
		damage     func(*output.Chunk)
	}{
		{"empty", "the chunk is damaged: it is empty", func(c *output.Chunk) { c.Data = nil }},
		{"of a later version", "written in form 9", func(c *output.Chunk) { c.Data = []byte{9, 1} }},
		{"cut off", "a record is cut off", func(c *output.Chunk) { c.Data = c.Data[:len(c.Data)-1] }},
		{"cut off in a mark", "a mark is cut off", func(c *output.Chunk) { c.Data = c.Data[:2] }},
		{"too short", "it has 27 bytes of output instead of 30", func(c *output.Chunk) { c.Bytes = 30 }},
		{"of too many bytes", "it is too long", func(c *output.Chunk) { c.Data = bomb.Bytes() }},
		{"not compressed", "the chunk is damaged", func(c *output.Chunk) { c.Data = []byte{1, 0xff, 0xff} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			bad := good
			bad.Data = bytes.Clone(good.Data)
			test.damage(&bad)
			var r output.Reader
			got := readWith(&r, &bad)
			if got.err == nil || !strings.Contains(got.err.Error(), test.want) || !strings.HasPrefix(got.err.Error(), "read output 0 of run 0000") {
				t.Errorf("got error %v", got.err)
			}
			if r.Next != bad.End() {
				t.Errorf("next is %d", r.Next)
			}
		})
	}
}

func TestLongOutputIsCompressed(t *testing.T) {
	c := collector(t, output.Config{}).Capture(run1, 1)
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&want, "2026-11-20T02:30:00Z INFO copied row %d\n", i)
	}
	c.Stdout().Write([]byte(want.String()))
	chunks, _ := c.Close()
	if len(chunks) != 1 || len(chunks[0].Data) > want.Len()/5 {
		t.Errorf("%d bytes are stored as %d chunks, the first with %d bytes", want.Len(), len(chunks), len(chunks[0].Data))
	}
	if read(t, &output.Reader{}, chunks...) != want.String() {
		t.Error("it is not what was written")
	}
}

func FuzzReader(f *testing.F) {
	chunk := sample(f)
	f.Add(chunk.Data, int64(0), false)
	f.Add([]byte{1, 0x62, 0x60}, int64(3), true)
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 0, 'a'}, int64(3), true)
	f.Fuzz(func(t *testing.T, data []byte, next int64, times bool) {
		c := output.Chunk{Run: job.ID{1}, Offset: 5, Bytes: 1 << 16, Data: data}
		total := 0
		for piece, err := range c.Pieces() {
			if err == nil {
				total += len(piece.Data)
			}
		}
		if total > output.ChunkMax {
			t.Errorf("%d bytes come out of a chunk", total)
		}
		r := output.Reader{Next: max(0, next), Times: times}
		r.Append(nil, &c)
	})
}
