package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/remote/wire"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// limit bounds the body of a route. It is checked before the body is parsed, as parsing and
// validation take many times the memory of the body.
type limit struct {
	bytes int64
	// values bounds the members of all objects and the elements of all lists.
	values int
}

// The limits of the routes.
var (
	// smallBody is a reason, a version, a span of time, a token.
	smallBody = limit{16 << 10, 100}
	// reportBody has the output of a run, each byte of which may take six in JSON.
	reportBody = limit{2 << 20, 100}
	// resultBody has the result of a step, as JSON, with its envelope.
	resultBody = limit{job.ResultMax + 1<<10, 5000}
	// paramsBody has values for the 256 parameters that a job may declare, at most as many
	// bytes as the arguments and environment of a process.
	paramsBody = limit{2 << 20, 1000}
	// workerBody has the claims or results of a batch, with output.
	workerBody = limit{wire.BodyMax, 50_000}
	// documentBody is one document: a job with all its lists full, or a calendar of ten
	// thousands of days.
	documentBody = limit{4 << 20, 50_000}
	// assistantBody is a call of a tool with documents, as jobs:check has them, escaped.
	assistantBody = limit{3 << 20, 1000}
	// filesBody is as large as the largest job file, with 100 values for each of the 10,000
	// documents.
	filesBody = limit{16 << 20, 1_000_000}
)

const (
	// bodyTime is how long a body may take to arrive: the largest one on a slow line.
	bodyTime = time.Minute
	// inFlightMax bounds the bytes of large bodies in flight: an answer takes some ten
	// times the memory of its body. Two of the largest fit.
	inFlightMax = 32 << 20
	// largeBody is the size from which a body counts. The bound on connections is enough
	// for smaller ones.
	largeBody = 64 << 10
	// roomTime is how long a large body waits for room, of the 30 s of a request.
	roomTime = 10 * time.Second
)

// bodies bounds the large bodies in flight.
type bodies struct{ room *semaphore.Weighted }

func newBodies() bodies { return bodies{semaphore.NewWeighted(inFlightMax)} }

// take reads the body of a request within its limit and a time, and leaves it for parsing. The caller
// calls done after the answer.
func (b bodies) take(w http.ResponseWriter, r *http.Request, most limit, within time.Duration) (done func(), refused *problem) {
	done = func() {}
	if r.ContentLength == 0 || most.bytes == 0 {
		return done, nil
	}
	// The rest of a refused body must not be read as the next request.
	tooLarge := func(why phrase.Text) *problem {
		if within == bodyTime {
			drain(w, r)
		}
		return problemOf(service.Refuse(client.TypeTooLarge, why)).withHeader("Connection", "close")
	}
	size := r.ContentLength
	if size < 0 {
		size = most.bytes
	}
	if size > most.bytes {
		return done, tooLarge(phrase.BodyTooLong.Of(int(size), int(most.bytes)))
	}
	if size >= largeBody {
		ctx, cancel := context.WithTimeout(r.Context(), roomTime)
		defer cancel()
		if b.room.Acquire(ctx, size) != nil {
			return done, problemOf(service.Refuse(client.TypeUnavailable, phrase.BusyWithBodies, phrase.TryAgain)).
				withHeader("Retry-After", "1").withHeader("Connection", "close")
		}
		done = func() { b.room.Release(size) }
	}
	body, err := readWithin(w, r, most.bytes, within)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		refused = problemOf(service.Refuse(client.TypeTooSlow, phrase.BodyTooSlow.Of(phrase.Span(job.Duration(within).InWords())))).withHeader("Connection", "close")
	case err != nil:
		refused = problemOf(service.Refuse(client.TypeMalformed, phrase.BodyBroken.Of(phrase.Words(err.Error())))).withHeader("Connection", "close")
	case int64(len(body)) > most.bytes:
		refused = tooLarge(phrase.BodyOver.Of(int(most.bytes)))
	default:
		if values := valuesIn(body); values > most.values {
			refused = tooLarge(phrase.BodyTooManyParts.Of(values, most.values))
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return done, refused
}

// readWithin reads a body, at most one byte more than most.
func readWithin(w http.ResponseWriter, r *http.Request, most int64, within time.Duration) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(within)) // connections of tests have none
	var buffer bytes.Buffer
	if r.ContentLength > 0 {
		buffer.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := buffer.ReadFrom(io.LimitReader(r.Body, most+1))
	return buffer.Bytes(), err
}

const (
	// drainMax is how much of a body beyond its limit is read and discarded: a client that is still
	// sending when its connection is closed never sees the answer. It is twice the largest body.
	drainMax = 32 << 20
	// drainTime is how long that may take.
	drainTime = 10 * time.Second
)

// drain discards the rest of a refused body, unless its sender waits for permission to send it.
func drain(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") != "" || r.ContentLength > drainMax {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, r.Body, drainMax) // else the sender sees a reset
}

// valuesIn counts the members of objects and the elements of lists in JSON, by its brackets
// and commas. Whether it is JSON is found later.
func valuesIn(body []byte) (n int) {
	quoted := false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == ',', c == '{', c == '[':
			n++
		}
	}
	return n
}
