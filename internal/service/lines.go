package service

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/output"
	"github.com/belfry-cron/belfry/job"
)

const (
	// LinesMax is the most lines of output in a response: some screens.
	LinesMax = 2000
	// linesDefault is the default number of lines.
	linesDefault = 500
	// lineMax bounds the text of a line, so that an endless line harms no page.
	lineMax = 64 << 10
	// indexesMax is the most attempts with an index of lines in memory.
	indexesMax = 256
)

// Lines reads the output of runs by line. A line ends where its stream is interrupted by the
// other one, as with the times shown.
type Lines struct {
	output *Output

	mu      sync.Mutex
	indexes map[attemptKey]*lineIndex
}

type attemptKey struct {
	run     job.ID
	attempt int
}

// lineIndex has positions of lines of an attempt, so that a search need not begin at the
// first line. It grows with the output.
type lineIndex struct {
	mu     sync.Mutex
	points []linePoint // the first is the beginning
}

// linePoint is the position of the last line that begins in a chunk.
type linePoint struct {
	seq    int   // of the chunk
	offset int64 // in all that was written
	lines  int   // that end before it
}

// index returns the index of an attempt.
func (l *Lines) index(key attemptKey) *lineIndex {
	l.mu.Lock()
	defer l.mu.Unlock()
	idx := l.indexes[key]
	if idx == nil {
		if l.indexes == nil || len(l.indexes) >= indexesMax {
			l.indexes = map[attemptKey]*lineIndex{}
		}
		idx = &lineIndex{points: []linePoint{{}}}
		l.indexes[key] = idx
	}
	return idx
}

// before returns the last point before a line, which is counted from 1.
func (x *lineIndex) before(line int) linePoint {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.points[0]
	for _, next := range x.points[1:] {
		if next.lines >= line {
			break
		}
		p = next
	}
	return p
}

// latest returns the last point.
func (x *lineIndex) latest() linePoint {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.points[len(x.points)-1]
}

func (x *lineIndex) add(p linePoint) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if last := x.points[len(x.points)-1]; p.lines > last.lines && p.seq > last.seq {
		x.points = append(x.points, p)
	}
}

// scan passes the lines from a point on to take, until that returns false. The number of a
// line is counted from 1.
func (l *Lines) scan(ctx context.Context, key attemptKey, idx *lineIndex, from linePoint, take func(number int, line []byte) bool) error {
	reader := output.Reader{Next: from.offset, Times: true}
	seq, number := from.seq, from.lines
	var rest []byte
	for {
		chunks, err := l.output.store.Output(ctx, key.run, key.attempt, seq, chunksPage)
		if err != nil {
			return err
		}
		for i := range chunks {
			chunk := output.Chunk(chunks[i])
			if rest, err = reader.Append(rest, &chunk); err != nil {
				l.output.log.Error("output is damaged", "run", key.run, "attempt", key.attempt, "error", err)
				rest = append(rest, "… a part is damaged and left out …\n"...)
			}
			seq = chunk.Seq + 1
			text := rest
			for {
				line, after, whole := bytes.Cut(text, []byte("\n"))
				if !whole {
					break
				}
				text, number = after, number+1
				if !take(number, line) {
					return nil
				}
			}
			begins := len(text) < len(rest)
			rest = append(rest[:0], text...)
			if _, _, unmarked := marks(rest); begins {
				idx.add(linePoint{chunk.Seq, reader.Next - int64(len(unmarked)), number})
			}
		}
		if len(chunks) < chunksPage {
			break
		}
	}
	if len(rest) > 0 {
		take(number+1, rest)
	}
	return nil
}

// attempt returns the requested attempt.
func (l *Lines) attempt(ctx context.Context, who Caller, id job.ID, number int) (attemptKey, error) {
	run, err := l.output.runs.runOf(ctx, who, Read, id)
	if err != nil {
		return attemptKey{}, err
	}
	if number > run.Attempt {
		return attemptKey{}, refuse(client.TypeNotFound, "run %s has no attempt %d", id, number)
	}
	if number == 0 {
		number = latest(&run)
	}
	return attemptKey{id, number}, nil
}

// Read returns some lines of an attempt; number 0 is the latest attempt. It begins with line
// from, counted from 1; with from 0 the lines are the last ones.
func (l *Lines) Read(ctx context.Context, who Caller, id job.ID, number, from, count int) (client.OutputLines, error) {
	lines := client.OutputLines{Items: []client.OutputLine{}}
	key, err := l.attempt(ctx, who, id, number)
	if err != nil {
		return lines, err
	}
	lines.Attempt = key.attempt
	if count <= 0 {
		count = linesDefault
	}
	count = min(count, LinesMax)
	idx := l.index(key)
	err = l.scan(ctx, key, idx, idx.latest(), func(n int, _ []byte) bool { lines.Total = n; return true })
	if err != nil {
		return lines, err
	}
	lines.Total = max(lines.Total, idx.latest().lines)
	if from <= 0 {
		from = max(1, lines.Total-count+1)
	}
	err = l.scan(ctx, key, idx, idx.before(from), func(n int, line []byte) bool {
		if n >= from {
			lines.Items = append(lines.Items, lineOf(n, line))
		}
		return n < from+count-1
	})
	return lines, err
}

// Search returns the lines of an attempt that contain a text, ignoring case, from a line
// on: at most count of them.
func (l *Lines) Search(ctx context.Context, who Caller, id job.ID, number int, text string, from, count int) (client.OutputLines, error) {
	lines := client.OutputLines{Items: []client.OutputLine{}}
	key, err := l.attempt(ctx, who, id, number)
	if err != nil {
		return lines, err
	}
	lines.Attempt = key.attempt
	if count <= 0 {
		count = linesDefault
	}
	count = min(count, LinesMax)
	wanted := bytes.ToLower([]byte(text))
	idx := l.index(key)
	err = l.scan(ctx, key, idx, idx.before(max(from, 1)), func(n int, line []byte) bool {
		lines.Total = n
		found := n >= from && bytes.Contains(bytes.ToLower(textOf(line)), wanted)
		if found && len(lines.Items) == count {
			lines.NextLine = n
			return false
		}
		if found {
			lines.Items = append(lines.Items, lineOf(n, line))
		}
		return true
	})
	return lines, err
}

// textOf returns a line without its mark.
func textOf(line []byte) []byte {
	if _, stream, text := marks(line); stream != "" {
		return text
	}
	return line
}

// marks parses a mark of output.Reader, and returns the text after it.
func marks(line []byte) (at time.Time, stream string, text []byte) {
	when, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(rest) < 2 || rest[1] != ' ' {
		return at, "", line
	}
	at, err := time.Parse(time.RFC3339, string(when))
	if err != nil {
		return at, "", line
	}
	switch rest[0] {
	case '|':
		return at, "stdout", rest[2:]
	case '!':
		return at, "stderr", rest[2:]
	}
	return at, "", line
}

// lineOf makes a line of a marked one. A line without a mark describes a gap.
func lineOf(n int, marked []byte) client.OutputLine {
	at, stream, text := marks(marked)
	line := client.OutputLine{Line: n, Time: at, Stream: stream}
	text = bytes.TrimSuffix(text, []byte("\r"))
	if len(text) > lineMax {
		text, line.Cut = text[:lineMax], len(text)
		for !utf8.Valid(text[max(0, len(text)-utf8.UTFMax):]) && len(text) > lineMax-utf8.UTFMax {
			text = text[:len(text)-1]
		}
	}
	line.Text = strings.ToValidUTF8(string(text), "\uFFFD")
	return line
}
