package service

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
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
	gap    outputGap
}

// outputGap is output that was not kept. While an attempt writes, more may follow it.
type outputGap struct {
	from, to int64
	line     int // that says so, by the number of the first one that is missing
	last     int // the last missing line; 0 if lines were not counted
}

// linePoint is the position of the last line that begins in a chunk.
type linePoint struct {
	seq    int        // of the chunk
	offset int64      // in all that was written
	lines  lineCounts // that end before it and are kept
	shift  int        // how many more were written
}

// lineCounts are how many lines are kept: of both streams, of stdout and of stderr, by the number
// of the stream. A line about a gap belongs to each.
type lineCounts [output.Stderr + 1]int

// with returns the counts with one more line, and whether that belongs to a stream.
func (c lineCounts) with(line []byte, stream output.Stream) (lineCounts, bool) {
	other := output.Stream(0)
	switch _, rest, _ := bytes.Cut(line, []byte(" ")); {
	case bytes.HasPrefix(rest, []byte("| ")):
		other = output.Stderr
	case bytes.HasPrefix(rest, []byte("! ")):
		other = output.Stdout
	}
	for s := range c {
		if output.Stream(s) != other || other == 0 {
			c[s]++
		}
	}
	return c, stream == 0 || stream != other
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

// before returns the last point before a line of a stream, which is counted from 1.
func (x *lineIndex) before(stream output.Stream, line int) linePoint {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.points[0]
	for _, next := range x.points[1:] {
		if next.lines[stream] >= line {
			break
		}
		p = next
	}
	return p
}

// miss notes that output is missing. A scan may begin within what is missing.
func (x *lineIndex) miss(gap outputGap) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gap.line > 0 {
		gap.from, gap.line = min(gap.from, x.gap.from), min(gap.line, x.gap.line)
		gap.to, gap.last = max(gap.to, x.gap.to), max(gap.last, x.gap.last)
	}
	x.gap = gap
}

// tell says in an answer what is missing.
func (x *lineIndex) tell(lines *client.OutputLines) {
	x.mu.Lock()
	defer x.mu.Unlock()
	lines.LeftOut, lines.LeftOutLine = x.gap.to-x.gap.from, x.gap.line
	if x.gap.last >= x.gap.line {
		lines.LeftOutTo = x.gap.last
	}
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
	if last := x.points[len(x.points)-1]; p.lines[0] > last.lines[0] && p.seq > last.seq {
		x.points = append(x.points, p)
	}
}

// scan passes the lines of a stream from a point on to take, with how many lines are kept up to
// each and with its number, until that returns false.
func (l *Lines) scan(ctx context.Context, key attemptKey, idx *lineIndex, from linePoint, stream output.Stream, take func(at lineCounts, number int, line []byte) bool) error {
	reader := output.Reader{Next: from.offset, Lines: int64(from.lines[0] + from.shift), Times: true}
	seq, at, shift := from.seq, from.lines, from.shift
	var rest []byte
	whole := func() (more bool) { // passes on the lines that are complete
		text := rest
		for {
			line, after, found := bytes.Cut(text, []byte("\n"))
			if !found {
				rest = append(rest[:0], text...)
				return true
			}
			text = after
			wanted := false
			if at, wanted = at.with(line, stream); wanted && !take(at, at[0]+shift, line) {
				return false
			}
		}
	}
	for {
		chunks, err := l.output.store.Output(ctx, key.run, key.attempt, seq, chunksPage)
		if err != nil {
			return err
		}
		for i := range chunks {
			chunk := output.Chunk(chunks[i])
			if chunk.Offset > reader.Next {
				gap := outputGap{from: reader.Next, to: chunk.Offset}
				rest = reader.Skip(rest, &chunk)
				gap.line, gap.last = at[0]+bytes.Count(rest, []byte("\n"))+shift, int(reader.Lines)
				idx.miss(gap)
				if !whole() {
					return nil
				}
				if gap.last > 0 {
					shift = gap.last - at[0]
				}
			}
			rest = l.appendChunk(rest, &reader, &chunk, key)
			seq = chunk.Seq + 1
			had := at
			if !whole() {
				return nil
			}
			if _, _, unmarked := marks(rest); at != had {
				idx.add(linePoint{chunk.Seq, reader.Next - int64(len(unmarked)), at, shift})
			}
		}
		if len(chunks) < chunksPage {
			break
		}
	}
	if at, wanted := at.with(rest, stream); wanted && len(rest) > 0 {
		take(at, at[0]+shift, rest)
	}
	return nil
}

// appendChunk appends the text of a chunk, or what stands for a damaged one.
func (l *Lines) appendChunk(dst []byte, reader *output.Reader, chunk *output.Chunk, key attemptKey) []byte {
	dst, err := reader.Append(dst, chunk)
	if err != nil {
		l.output.log.Error("output is damaged", "run", key.run, "attempt", key.attempt, "error", err)
		dst = append(dst, "… a part is damaged and left out …\n"...)
	}
	return dst
}

// attempt returns the requested attempt.
func (l *Lines) attempt(ctx context.Context, who Caller, id job.ID, number int) (attemptKey, error) {
	run, err := l.output.runs.runOf(ctx, who, Read, id)
	if err != nil {
		return attemptKey{}, err
	}
	if number > run.Attempt {
		return attemptKey{}, Refuse(client.TypeNotFound, phrase.NoAttempt.Of(id, number))
	}
	if number == 0 {
		number = latest(&run)
	}
	return attemptKey{id, number}, nil
}

// Read returns some lines of an attempt, the last ones unless the query says where to begin.
func (l *Lines) Read(ctx context.Context, who Caller, id job.ID, q client.LinesQuery) (client.OutputLines, error) {
	key, err := l.attempt(ctx, who, id, q.Attempt)
	if err != nil {
		return client.OutputLines{Items: []client.OutputLine{}}, err
	}
	return l.read(ctx, key, &q)
}

// ReadOf is [Read] for an attempt of a run that the caller has got.
func (l *Lines) ReadOf(ctx context.Context, who Caller, run *client.Run, q client.LinesQuery) (client.OutputLines, error) {
	if err := who.May(Read); err != nil {
		return client.OutputLines{}, err
	}
	if !who.has(Read, run.Job) {
		return client.OutputLines{}, l.output.runs.noRun(run.ID)
	}
	return l.read(ctx, attemptKey{run.ID, q.Attempt}, &q)
}

func (l *Lines) read(ctx context.Context, key attemptKey, q *client.LinesQuery) (client.OutputLines, error) {
	lines := client.OutputLines{Attempt: key.attempt, Items: []client.OutputLine{}}
	stream, from, count := streams[q.Stream], q.From, linesOf(q)
	idx := l.index(key)
	latest := idx.latest()
	lines.Total = latest.lines[stream]
	err := l.scan(ctx, key, idx, latest, stream, func(at lineCounts, number int, line []byte) bool {
		lines.Total = at[stream]
		if from <= 0 {
			if len(lines.Items) == 2*count {
				lines.Items = append(lines.Items[:0], lines.Items[count:]...)
			}
			lines.Items = append(lines.Items, lineOf(at[stream], number, line))
		}
		return true
	})
	if err != nil {
		return lines, err
	}
	if from <= 0 {
		from = max(1, lines.Total-count+1)
		if had := len(lines.Items); had >= min(count, lines.Total) { // the second look is not needed
			lines.Items = lines.Items[max(0, had-count):]
			idx.tell(&lines)
			return lines, nil
		}
		lines.Items = lines.Items[:0]
	}
	err = l.scan(ctx, key, idx, idx.before(stream, from), stream, func(at lineCounts, number int, line []byte) bool {
		if at[stream] >= from {
			lines.Items = append(lines.Items, lineOf(at[stream], number, line))
		}
		return at[stream] < from+count-1
	})
	idx.tell(&lines)
	return lines, err
}

// linesOf returns how many lines a query asks for.
func linesOf(q *client.LinesQuery) int {
	if q.Count <= 0 {
		return linesDefault
	}
	return min(q.Count, LinesMax)
}

// Search returns the lines of an attempt that contain the text of the query, ignoring case.
func (l *Lines) Search(ctx context.Context, who Caller, id job.ID, q client.LinesQuery) (lines client.OutputLines, err error) {
	lines = client.OutputLines{Items: []client.OutputLine{}}
	key, err := l.attempt(ctx, who, id, q.Attempt)
	if err != nil {
		return lines, err
	}
	lines.Attempt = key.attempt
	stream, count := streams[q.Stream], linesOf(&q)
	wanted := bytes.ToLower([]byte(q.Text))
	idx := l.index(key)
	defer func() { idx.tell(&lines) }()
	err = l.scan(ctx, key, idx, idx.before(stream, max(q.From, 1)), stream, func(at lineCounts, number int, line []byte) bool {
		lines.Total = at[stream]
		text := textOf(line)
		found := at[stream] >= q.From && bytes.Contains(bytes.ToLower(text), wanted) && (!q.Errors || reason.NamesError(text))
		if found && len(lines.Items) == count {
			lines.NextLine = at[stream]
			return false
		}
		if found {
			lines.Items = append(lines.Items, lineOf(at[stream], number, line))
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

// marks parses a mark of [output.Reader], and returns the text after it.
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
func lineOf(place, number int, marked []byte) client.OutputLine {
	written, stream, text := marks(marked)
	line := client.OutputLine{Line: number, Place: place, Time: written, Stream: stream}
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
