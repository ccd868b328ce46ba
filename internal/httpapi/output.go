package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/output"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// outputStore is what the route about output wants.
type outputStore interface {
	Output(ctx context.Context, run job.ID, attempt, fromSeq, limit int) ([]store.OutputChunk, error)
}

const (
	// aliveEvery is how often a follower is told that the connection lives.
	aliveEvery = 15 * time.Second
	// writeTime is how long a client may take to read what was written to it.
	writeTime = 30 * time.Second
	// chunksPage is how many chunks are read at a time: a megabyte or less.
	chunksPage = 16
	// textMax bounds the text of an event, which escaping can make six times as
	// long: clients have a bound on lines.
	textMax = 256 << 10
)

// outputPath is the route whose answers may have no end.
const outputPath = "/api/v1/runs/{id}/output"

func (a *api) outputRoutes() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "run-output", Method: http.MethodGet, Path: outputPath,
		Summary: "Get the output of a run, or follow it",
		Description: "With Accept: text/event-stream the output is followed until the run has ended, over all its attempts: " +
			"events of type output with {attempt, next, text}, and at last one of type end with the run. Their ids resume by Last-Event-ID.",
		Responses: map[string]*huma.Response{"200": {
			Description: "What was written so far, or events.",
			Content: map[string]*huma.MediaType{
				"text/plain": {Schema: &huma.Schema{Type: "string"}},
				"text/event-stream": a.streamOf(map[string]reflect.Type{
					"output": reflect.TypeFor[client.OutputPart](), "end": reflect.TypeFor[client.Run](), "problem": reflect.TypeFor[client.Problem](),
				}),
			},
		}},
	}, a.runOutput)
}

type outputInput struct {
	RunInput
	Attempt     int       `query:"attempt" minimum:"0" doc:"The number of the attempt. Default: the latest; with events all from the latest on."`
	Offset      int64     `query:"offset" minimum:"0" doc:"Where to begin: a next of an earlier event."`
	Stream      string    `query:"stream" enum:"stdout,stderr" doc:"Only this stream. Default: both, in the order of writing."`
	Since       time.Time `query:"since" doc:"Only what was written at this instant or later."`
	Timestamps  bool      `query:"timestamps" doc:"The time, and | for stdout or ! for stderr, before each line."`
	Tail        int       `query:"tail" minimum:"0" maximum:"100000" doc:"Only so many of the last lines of what there is. 0: all."`
	Accept      string    `header:"Accept" doc:"text/event-stream to follow."`
	LastEventID string    `header:"Last-Event-ID" maxLength:"64" doc:"The id of the last event that was seen."`
}

// wantsEvents tells whether a client follows.
func wantsEvents(accept string) bool { return strings.Contains(accept, "text/event-stream") }

func (a *api) runOutput(ctx context.Context, in *outputInput) (*huma.StreamResponse, error) {
	run, err := a.run(ctx, in.ID)
	if err != nil {
		return nil, a.asProblem(ctx, err)
	}
	r := &outputReader{api: a, in: in, number: in.Attempt}
	r.reader.Next = in.Offset
	r.reader.Since, r.reader.Times = in.Since, in.Timestamps
	switch in.Stream {
	case "stdout":
		r.reader.Stream = output.Stdout
	case "stderr":
		r.reader.Stream = output.Stderr
	}
	events := wantsEvents(in.Accept)
	if events && in.LastEventID != "" {
		if err := r.resume(in.LastEventID); err != nil {
			return nil, err
		}
	}
	// Who follows from the first attempt on may come when the run has ended without one.
	if r.number > run.Attempt && (r.number > 1 || in.Attempt > 0) {
		return nil, refuse(client.TypeNotFound, "run %s has no attempt %d", in.ID, r.number)
	}
	if r.number == 0 {
		r.number = latest(&run)
	}
	if !events {
		return &huma.StreamResponse{Body: func(hc huma.Context) { r.text(hc) }}, nil
	}
	following, place, err := a.places.take(ctx, a.stillValid)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer place.leave()
		r.events(following, hc)
	}}, nil
}

// latest returns the number of the attempt that has written something: while a
// run waits for its retry, the one before.
func latest(run *client.Run) int {
	if (run.State == job.StateReady || run.State == job.StateWaiting) && run.Attempt > 1 {
		return run.Attempt - 1
	}
	return run.Attempt
}

// outputReader reads the output of the attempts of a run.
type outputReader struct {
	api    *api
	in     *outputInput
	number int // of the attempt
	seq    int // of the next chunk
	reader output.Reader
	rest   []byte // of a letter that is not complete
	// followed is the run, if it is followed, and look the last that was taken at it.
	followed *followedRun
	look     uint64
}

// resume goes on behind an event.
func (r *outputReader) resume(id string) error {
	attempt, offset, ok := strings.Cut(id, ":")
	number, err1 := strconv.Atoi(attempt)
	next, err2 := strconv.ParseInt(offset, 10, 64)
	if !ok || err1 != nil || err2 != nil || number < 0 || next < 0 {
		return wrongParameter("Last-Event-ID", fmt.Sprintf("%q is not the id of an event of this list", id), "")
	}
	r.number, r.reader.Next = number, next
	return nil
}

// more returns the text of the next chunks, and whether there may be more at
// once.
func (r *outputReader) more(ctx context.Context) (text []byte, more bool, err error) {
	chunks, err := r.chunks(ctx)
	if err != nil {
		return nil, false, err
	}
	for i := range chunks {
		chunk := output.Chunk(chunks[i])
		r.seq = chunk.Seq + 1
		if text, err = r.reader.Append(text, &chunk); err != nil {
			r.api.Log.Error("output is damaged", "run", r.in.ID, "attempt", r.number, "error", err)
			text = append(text, "… a part is damaged and left out …\n"...)
		}
	}
	return text, len(chunks) == chunksPage, nil
}

// chunks reads the next chunks, or has them of who has read them for all.
func (r *outputReader) chunks(ctx context.Context) ([]store.OutputChunk, error) {
	if r.followed == nil {
		return r.api.Store.Output(ctx, r.in.ID, r.number, r.seq, chunksPage)
	}
	return r.followed.chunks(ctx, r.api, part{r.look, r.number, r.seq})
}

// text writes what there is.
func (r *outputReader) text(hc huma.Context) {
	hc.SetHeader("Content-Type", "text/plain; charset=utf-8")
	hc.SetHeader("Cache-Control", "no-store")
	// What a job has written is nobody's page.
	hc.SetHeader("Content-Security-Policy", "sandbox")
	hc.SetStatus(http.StatusOK)
	if r.in.Tail > 0 {
		all, err := r.all(hc.Context())
		if err != nil {
			r.broken(err)
		}
		_, _ = hc.BodyWriter().Write(lastLines(all, r.in.Tail))
		return
	}
	for more := true; more; {
		var text []byte
		var err error
		if text, more, err = r.more(hc.Context()); err != nil {
			r.broken(err)
		}
		if _, err := hc.BodyWriter().Write(text); err != nil {
			return
		}
	}
}

// broken ends a connection in the middle, so that the client knows that the
// answer is not whole.
func (r *outputReader) broken(err error) {
	r.api.Log.Error("output could not be read", "run", r.in.ID, "error", err)
	panic(http.ErrAbortHandler)
}

// all returns what there is of the attempt, which is bounded.
func (r *outputReader) all(ctx context.Context) ([]byte, error) {
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

// events follows the run until it has ended, or ctx has.
func (r *outputReader) events(ctx context.Context, hc huma.Context) {
	_, w := humago.Unwrap(hc)
	s := openStream(w)
	if err := s.comment("begin"); err != nil {
		return
	}
	r.followed = r.api.Followers.follow(r.in.ID)
	defer r.followed.leave()
	err := r.follow(ctx, s)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil && hc.Context().Err() == nil && s.err == nil {
		_ = s.event("problem", "", r.api.asProblem(ctx, err))
	}
}

func (r *outputReader) follow(ctx context.Context, s *stream) error {
	tail := r.in.Tail
	var before client.Run
	for {
		news, more := r.followed.now()
		// The state is asked for before the output: when it says that the
		// attempt has ended, all of its output is there.
		run, err := r.followed.read(ctx, r.api, news)
		if err != nil {
			return err
		}
		seq := r.seq
		r.look = run.look
		if err := r.show(ctx, s, &tail); err != nil {
			return err
		}
		r.followed.seen(run.State == job.StateRunning && run.Node == r.api.Node, r.seq > seq || run.State != before.State || run.Attempt != before.Attempt)
		before = run.Run
		if r.ended(&run.Run) {
			if err := r.emit(s, nil, true); err != nil {
				return err
			}
			if r.in.Attempt > 0 || run.Attempt <= r.number && run.State == job.StateDone {
				return s.event("end", "", run.Run)
			}
			if run.Attempt > r.number {
				r.next()
				continue
			}
		}
		if err := s.wait(ctx, more); err != nil {
			return err
		}
		if spread := r.followed.spread(); spread > 0 {
			if err := sleep(ctx, rand.N(spread)); err != nil {
				return err
			}
		}
	}
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// show passes on what has been written since. The first time it may be the last
// lines alone.
func (r *outputReader) show(ctx context.Context, s *stream, tail *int) error {
	if *tail > 0 {
		text, err := r.all(ctx)
		if err != nil {
			return err
		}
		text, *tail = lastLines(text, *tail), 0
		return r.emit(s, text, false)
	}
	for more := true; more; {
		var text []byte
		var err error
		if text, more, err = r.more(ctx); err != nil {
			return err
		}
		if err := r.emit(s, text, false); err != nil {
			return err
		}
	}
	return nil
}

// emit writes a text as events. A letter that is not complete waits for the rest
// of it, unless this was the last.
func (r *outputReader) emit(s *stream, text []byte, last bool) error {
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
		id, next := "", r.reader.Next-int64(len(r.rest))
		if len(text) == 0 {
			// Only behind all of it is there a place to resume.
			id = fmt.Sprintf("%d:%d", r.number, next)
		}
		event := client.OutputPart{Attempt: r.number, Next: next, Text: strings.ToValidUTF8(string(part), "\uFFFD")}
		if !utf8.Valid(part) {
			event.Bytes = part // JSON has no other way to say them
		}
		if err := s.event("output", id, event); err != nil {
			return err
		}
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

// next goes on to the next attempt.
func (r *outputReader) next() {
	r.number, r.seq = r.number+1, 0
	r.reader = output.Reader{Stream: r.reader.Stream, Since: r.reader.Since, Times: r.reader.Times}
}

// ended tells whether the attempt that is read has ended.
func (r *outputReader) ended(run *client.Run) bool {
	isRead := func(a client.Attempt) bool { return a.Number == r.number }
	return run.State == job.StateDone || slices.ContainsFunc(run.Attempts, isRead)
}

// stream writes server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	last    time.Time // when something was written
	err     error
}

// openStream begins to answer with events.
func openStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies hold events back otherwise
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, control: http.NewResponseController(w)}
}

// event writes an event. Without an id the client resumes behind the one before.
func (s *stream) event(kind, id string, data any) error {
	encoded, err := json.Marshal(data)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", kind, encoded)
	return s.write(b.Bytes())
}

func (s *stream) comment(text string) error { return s.write([]byte(": " + text + "\n\n")) }

// wait returns when there is more. Meanwhile it tells the client, and whatever is
// between, that the connection lives.
func (s *stream) wait(ctx context.Context, more <-chan struct{}) error {
	alive := time.NewTimer(aliveEvery - time.Since(s.last))
	defer alive.Stop()
	for {
		select {
		case <-more:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-alive.C:
			if err := s.comment("alive"); err != nil {
				return err
			}
			alive.Reset(aliveEvery)
		}
	}
}

func (s *stream) write(data []byte) error {
	// Connections of tests have no deadlines.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, s.err = s.w.Write(data); s.err == nil {
		s.err = s.control.Flush()
	}
	s.last = time.Now()
	return s.err
}
