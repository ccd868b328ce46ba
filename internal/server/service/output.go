package service

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/node/output"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// outputStore is the part of a store that output uses.
type outputStore interface {
	Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) ([]store.OutputChunk, error)
}

const (
	// AliveEvery is the interval of keepalives on a stream without news.
	AliveEvery = 15 * time.Second
	// chunksPage is how many chunks are read at a time: a megabyte or less.
	chunksPage = 16
	// textMax bounds the text of a part, which escaping can make six times as long: clients
	// have a bound on lines.
	textMax = 256 << 10
)

// Output reads and follows the output of runs.
type Output struct {
	*base
	runs      *Runs
	store     outputStore
	followers *Followers
	places    *places
	node      string
}

// Place is where a follower continues: an attempt and an offset in its output.
type Place struct {
	Attempt int
	Offset  int64
}

// String writes the place as [ParsePlace] reads it.
func (p Place) String() string { return fmt.Sprintf("%d:%d", p.Attempt, p.Offset) }

// ParsePlace reads a place.
func ParsePlace(text string) (p Place, ok bool) {
	attempt, offset, found := strings.Cut(text, ":")
	var err1, err2 error
	p.Attempt, err1 = strconv.Atoi(attempt)
	p.Offset, err2 = strconv.ParseInt(offset, 10, 64)
	return p, found && err1 == nil && err2 == nil && p.Attempt >= 0 && p.Offset >= 0
}

// Follower receives the output of a run as it is written.
type Follower interface {
	// Part receives a stretch of output. The stream can be resumed at its place; without
	// one it can only be resumed after an earlier part.
	Part(part client.OutputPart, at *Place) error
	// Alive is called after [AliveEvery] without news.
	Alive() error
}

// Open returns a reader of the output that a query selects. With follow it takes one of a
// bounded number of streams. The caller closes the reader.
func (s *Output) Open(ctx context.Context, who Caller, id job.ID, q client.OutputQuery, resume *Place, follow bool) (*OutputReader, error) {
	run, err := s.runs.seen(ctx, who, Read, id)
	if err != nil {
		return nil, err
	}
	r := s.reader(id, &q)
	if resume != nil {
		r.number, r.reader.Next = resume.Attempt, resume.Offset
	}
	// A follower from the first attempt on may come after the run has ended without one.
	if r.number > run.Attempt && (r.number > 1 || r.only > 0) {
		return nil, Refuse(client.TypeNotFound, phrase.NoAttempt.Of(id, r.number))
	}
	if r.number == 0 {
		r.number = latest(&run)
	}
	if follow {
		if r.place, err = s.places.take(who); err != nil { //nolint:contextcheck // the watch of a token outlives a request
			return nil, err
		}
	}
	return r, nil
}

// Tail returns the last lines of an attempt of a run that the caller has got.
func (s *Output) Tail(ctx context.Context, who Caller, run *client.Run, q client.OutputQuery) ([]byte, error) {
	if err := who.May(Read); err != nil {
		return nil, err
	}
	if !who.has(Read, run.Job) {
		return nil, s.runs.noRun(run.ID)
	}
	text, err := s.reader(run.ID, &q).all(ctx)
	return lastLines(text, q.Tail), err
}

// Last returns the last lines of an attempt in plain letters; for a flow, of the step that failed.
func (s *Output) Last(ctx context.Context, who Caller, id job.ID, attempt, most int) (lines []string, err error) {
	run, err := s.runs.Get(ctx, who, id)
	if err != nil {
		return nil, err
	}
	for range job.FlowDepthMax {
		failed := failedStep(&run)
		if failed.IsZero() {
			break
		}
		if run, err = s.runs.Get(ctx, who, failed); err != nil {
			return nil, err
		}
		attempt = run.Attempt
	}
	text, err := s.Tail(ctx, who, &run, client.OutputQuery{Attempt: attempt, Tail: most})
	for line := range strings.Lines(string(text)) {
		lines = append(lines, reason.Plain(line))
	}
	return lines, err
}

// reader returns a reader of the output that a query selects.
func (s *Output) reader(id job.ID, q *client.OutputQuery) *OutputReader {
	r := &OutputReader{topic: s, run: id, only: q.Attempt, tail: q.Tail, number: q.Attempt}
	r.reader = output.Reader{Next: q.Offset, Stream: streams[q.Stream], Since: q.Since, Times: q.Times}
	return r
}

// streams are those that a query can name.
var streams = map[string]output.Stream{"stdout": output.Stdout, "stderr": output.Stderr}

// latest returns the number of the attempt that has written output: while a run waits for
// its retry, the one before.
func latest(run *client.Run) int {
	if (run.State == job.StateReady || run.State == job.StateWaiting) && run.Attempt > 1 {
		return run.Attempt - 1
	}
	return run.Attempt
}

// OutputReader reads the output of the attempts of a run. It is used by one goroutine.
type OutputReader struct {
	topic  *Output
	run    job.ID
	only   int // the requested attempt, 0 for all from the latest on
	tail   int // how many of the last lines are wanted, 0 for all
	number int // of the attempt
	seq    int // of the next chunk
	reader output.Reader
	rest   []byte // of a letter that is not complete
	// followed is the followed run, if any, and look is its last poll.
	followed *followedRun
	look     uint64
	place    *place // nil unless it is followed
	to       Follower
	sent     time.Time // when the follower got something
}

// Close gives the place of the reader back.
func (r *OutputReader) Close() {
	if r.place != nil {
		r.place.leave()
	}
}

// Write passes the output so far to write, until that returns an error.
func (r *OutputReader) Write(ctx context.Context, write func(text []byte) error) error {
	if r.tail > 0 {
		all, err := r.all(ctx)
		if err != nil {
			return err
		}
		return write(lastLines(all, r.tail))
	}
	for more := true; more; {
		var text []byte
		var err error
		if text, more, err = r.more(ctx); err != nil {
			return err
		}
		if err := write(text); err != nil {
			return err
		}
	}
	return nil
}

// more returns the text of the next chunks, and whether there may be more at
// once.
func (r *OutputReader) more(ctx context.Context) (text []byte, more bool, err error) {
	chunks, err := r.chunks(ctx)
	if err != nil {
		return nil, false, err
	}
	for i := range chunks {
		chunk := output.Chunk(chunks[i])
		r.seq = chunk.Seq + 1
		if text, err = r.reader.Append(text, &chunk); err != nil {
			r.topic.log.Error("output is damaged", "run", r.run, "attempt", r.number, "error", err)
			text = append(text, "… a part is damaged and left out …\n"...)
		}
	}
	return text, len(chunks) == chunksPage, nil
}

// chunks reads the next chunks, or takes them from a follower who has read them for all.
func (r *OutputReader) chunks(ctx context.Context) ([]store.OutputChunk, error) {
	if r.followed == nil {
		return r.topic.store.Output(ctx, r.run, r.number, r.seq, chunksPage)
	}
	return r.followed.chunks(ctx, r.topic, part{r.look, r.number, r.seq})
}

// all returns the output of the attempt so far, which is bounded.
func (r *OutputReader) all(ctx context.Context) ([]byte, error) {
	var all []byte
	for {
		text, more, err := r.more(ctx)
		all = append(all, text...)
		if err != nil || !more {
			return all, err
		}
	}
}

// lastLines returns the last lines of a text.
func lastLines(text []byte, n int) []byte {
	at := len(bytes.TrimSuffix(text, []byte("\n")))
	for ; n > 0 && at >= 0; n-- {
		at = bytes.LastIndexByte(text[:at], '\n')
	}
	return text[at+1:]
}

// Follow passes the output to a follower as it is written, over all attempts, until the run
// has ended; it returns the run. The error may come from the follower.
func (r *OutputReader) Follow(ctx context.Context, to Follower) (client.Run, error) {
	following, stop := r.place.within(ctx)
	defer stop()
	r.to, r.sent = to, time.Now()
	r.followed = r.topic.followers.follow(r.run)
	defer r.followed.leave()
	run, err := r.follow(following)
	if following.Err() != nil {
		err = context.Cause(following)
	}
	return run, err
}

func (r *OutputReader) follow(ctx context.Context) (client.Run, error) {
	var before client.Run
	for {
		news, more := r.followed.now()
		// The state is read before the output: if the attempt has ended then, its output is
		// complete.
		run, err := r.followed.read(ctx, r.topic, news)
		if err != nil {
			return run.Run, err
		}
		seq := r.seq
		r.look = run.look
		if err := r.show(ctx); err != nil {
			return run.Run, err
		}
		r.followed.seen(run.State == job.StateRunning && run.Node == r.topic.node, r.seq > seq || run.State != before.State || run.Attempt != before.Attempt)
		before = run.Run
		if r.ended(&run.Run) {
			if err := r.emit(nil, true); err != nil {
				return run.Run, err
			}
			if r.only > 0 || run.Attempt <= r.number && run.State == job.StateDone {
				return run.Run, nil
			}
			if run.Attempt > r.number {
				r.next()
				continue
			}
		}
		if err := r.wait(ctx, more); err != nil {
			return run.Run, err
		}
		if spread := r.followed.spread(); spread > 0 {
			if err := sleep(ctx, rand.N(spread)); err != nil {
				return run.Run, err
			}
		}
	}
}

// wait returns when there is more. In the meantime it keeps the follower's connection
// alive.
func (r *OutputReader) wait(ctx context.Context, more <-chan struct{}) error {
	alive := time.NewTimer(AliveEvery - time.Since(r.sent))
	defer alive.Stop()
	for {
		select {
		case <-more:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-alive.C:
			if err := r.to.Alive(); err != nil {
				return err
			}
			r.sent = time.Now()
			alive.Reset(AliveEvery)
		}
	}
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// show passes on the output since the last call. The first call may pass only the last
// lines.
func (r *OutputReader) show(ctx context.Context) error {
	if r.tail > 0 {
		text, err := r.all(ctx)
		if err != nil {
			return err
		}
		text, r.tail = lastLines(text, r.tail), 0
		return r.emit(text, false)
	}
	for more := true; more; {
		var text []byte
		var err error
		if text, more, err = r.more(ctx); err != nil {
			return err
		}
		if err := r.emit(text, false); err != nil {
			return err
		}
	}
	return nil
}

// emit passes a text on in parts. A letter that is not complete waits for its rest, unless
// this was the last text.
func (r *OutputReader) emit(text []byte, last bool) error {
	text = append(r.rest, text...)
	r.rest = nil
	if !last {
		whole := wholeLetters(text)
		text, r.rest = text[:whole], bytes.Clone(text[whole:])
	}
	for len(text) > 0 {
		part := text
		if len(part) > textMax {
			part = part[:wholeLetters(part[:textMax])]
		}
		text = text[len(part):]
		next := r.reader.Next - int64(len(r.rest))
		var at *Place
		if len(text) == 0 {
			// Only behind all of it is there a place to resume.
			at = &Place{r.number, next}
		}
		event := client.OutputPart{Attempt: r.number, Next: next, Text: strings.ToValidUTF8(string(part), "\uFFFD")}
		if !utf8.Valid(part) {
			event.Bytes = part // JSON cannot express them as text
		}
		if err := r.to.Part(event, at); err != nil {
			return err
		}
		r.sent = time.Now()
	}
	return nil
}

// wholeLetters returns the length of a text without a letter that is not complete
// at its end.
func wholeLetters(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if b := text[len(text)-n]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(text[len(text)-n:]) {
				return len(text) - n
			}
			break
		}
	}
	return len(text)
}

// next begins with the next attempt.
func (r *OutputReader) next() {
	r.number, r.seq = r.number+1, 0
	r.reader = output.Reader{Stream: r.reader.Stream, Since: r.reader.Since, Times: r.reader.Times}
}

// ended reports whether the attempt being read has ended.
func (r *OutputReader) ended(run *client.Run) bool {
	isRead := func(a client.Attempt) bool { return a.Number == r.number }
	return run.State == job.StateDone || slices.ContainsFunc(run.Attempts, isRead)
}
