package output_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/job"
)

type nowhere struct{}

func (nowhere) Append(context.Context, []output.Chunk) error { return nil }

// BenchmarkShortRun is an attempt that writes 200 bytes in four lines.
func BenchmarkShortRun(b *testing.B) {
	collector := collector(b, output.Config{Sink: nowhere{}})
	stop := start(collector)
	defer stop()
	line := bytes.Repeat([]byte("x"), 50)
	b.ReportAllocs()
	for b.Loop() {
		c := collector.Capture(job.ID{}, 1)
		for range 4 {
			c.Stdout().Write(line)
		}
		c.Close()
	}
}

// BenchmarkShortRuns captures short runs on all processors at once.
func BenchmarkShortRuns(b *testing.B) {
	collector := collector(b, output.Config{Sink: nowhere{}})
	stop := start(collector)
	defer stop()
	line := bytes.Repeat([]byte("x"), 50)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c := collector.Capture(job.ID{}, 1)
			for range 4 {
				c.Stdout().Write(line)
			}
			c.Close()
		}
	})
}

// BenchmarkDrain is an attempt that writes as fast as it can, in pieces of some
// size, while it is flushed.
func BenchmarkDrain(b *testing.B) {
	var text bytes.Buffer
	for i := 0; text.Len() < 64<<10; i++ {
		fmt.Fprintf(&text, "2026-11-20T02:30:00Z INFO copied row %d of table orders\n", i)
	}
	for _, size := range []int{64, 4 << 10, 32 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			collector := collector(b, output.Config{Sink: nowhere{}})
			stop := start(collector)
			defer stop()
			c := collector.Capture(job.ID{}, 1)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				c.Stdout().Write(text.Bytes()[:size])
			}
			c.Close()
		})
	}
}

// BenchmarkRead formats the text of a full chunk.
func BenchmarkRead(b *testing.B) {
	c := collector(b, output.Config{}).Capture(job.ID{}, 1)
	for i := range 900 {
		fmt.Fprintf(c.Stdout(), "2026-11-20T02:30:00Z INFO copied row %d of table orders\n", i)
	}
	chunks, _ := c.Close()
	var text []byte
	b.SetBytes(int64(chunks[0].Bytes))
	for b.Loop() {
		var r output.Reader
		text, _ = r.Append(text[:0], &chunks[0])
	}
}

// BenchmarkPipe captures the output of a process that only writes.
func BenchmarkPipe(b *testing.B) {
	collector := collector(b, output.Config{Sink: nowhere{}})
	stop := start(collector)
	defer stop()
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	c := collector.Capture(job.ID{}, 1)
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(c.Stdout(), r)
		done <- err
	}()
	data := bytes.Repeat([]byte("0123456789abcde\n"), 4<<10)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		w.Write(data)
	}
	w.Close()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	c.Close()
}
