package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// OutputQuery selects output.
type OutputQuery struct {
	Attempt int       // 0: the latest
	Offset  int64     // where to begin: see OutputPart.Next
	Stream  string    // stdout or stderr; "" for both
	Since   time.Time // only output written at or after this time; zero for all
	Times   bool      // adds the time and the stream to each line
	Tail    int       // only the last lines, this many; 0 for all
	// FromFirst makes Follow begin with the first attempt. Without it, a request right after the
	// creation of the run may miss that attempt.
	FromFirst bool
}

func (q OutputQuery) values() url.Values {
	query := values("stream", q.Stream)
	setNumber(query, "attempt", q.Attempt)
	setNumber(query, "tail", q.Tail)
	if q.Offset > 0 {
		query.Set("offset", strconv.FormatInt(q.Offset, 10))
	}
	setTime(query, "since", q.Since)
	if q.Times {
		query.Set("timestamps", "true")
	}
	return query
}

// Output writes the output of a run so far to w, byte for byte.
func (c *Client) Output(ctx context.Context, run job.ID, q OutputQuery, w io.Writer) error {
	response, err := c.send(ctx, call{method: http.MethodGet, path: "/runs/" + run.String() + "/output", query: q.values()}, "text/plain")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	reader := &answerReader{reader: response.Body}
	if _, err := io.Copy(w, reader); err != nil {
		if reader.err != nil {
			return c.unreachable(reader.err)
		}
		return err
	}
	return nil
}

// answerReader keeps the read error, to distinguish it from a write error.
type answerReader struct {
	reader io.Reader
	err    error
}

// Read implements [io.Reader].
func (r *answerReader) Read(p []byte) (int, error) {
	n, err := r.reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// OutputPart is a part of the output of a followed run.
type OutputPart struct {
	Attempt int    `json:"attempt" doc:"The attempt that wrote it."`
	Next    int64  `json:"next" doc:"The offset to continue from."`
	Text    string `json:"text" doc:"What it wrote. Bytes that are no UTF-8 are replaced."`
	Bytes   []byte `json:"bytes,omitempty" doc:"What it wrote, in base64, where some of it is no UTF-8."`
}

const (
	// eventMax bounds an event: a chunk of output, escaped, with a time before each line.
	eventMax = 4 << 20
	// againAfter is the wait before a broken connection is reconnected, and againMax the
	// number of attempts in a row.
	againAfter = time.Second
	againMax   = 10
	// firstEvent is an event id before all events.
	firstEvent = "1:0"
)

// Follow passes the output of a run to show, as it is written, until the run has ended, and
// returns the run. Later attempts are included, unless the query names one. A broken
// connection is reconnected and continues where it stopped.
func (c *Client) Follow(ctx context.Context, run job.ID, q OutputQuery, show func(OutputPart) error) (Run, error) {
	last := ""
	for failures := 0; ; failures++ {
		ended, progress, err := c.follow(ctx, run, q, &last, show)
		if ended != nil || err != nil && (!errors.Is(err, ErrUnreachable) || last == "" && failures == 0) {
			if ended == nil {
				ended = &Run{}
			}
			return *ended, err
		}
		if progress {
			failures = 0
		}
		if failures >= againMax {
			return Run{}, err
		}
		select {
		case <-ctx.Done():
			return Run{}, ctx.Err()
		case <-time.After(againAfter):
		}
	}
}

// follow follows output on one connection. It returns the run once it has ended, and nil without an
// error if the connection ended early.
func (c *Client) follow(ctx context.Context, run job.ID, q OutputQuery, last *string, show func(OutputPart) error) (ended *Run, progress bool, err error) {
	header := map[string]string{}
	if *last != "" {
		header["Last-Event-ID"] = *last
	} else if q.FromFirst {
		header["Last-Event-ID"] = firstEvent
	}
	response, err := c.send(ctx, call{method: http.MethodGet, path: "/runs/" + run.String() + "/output", query: q.values(), header: header}, "text/event-stream")
	if err != nil {
		return nil, false, err
	}
	defer response.Body.Close()
	err = c.readEvents(ctx, response.Body, func(e sentEvent) error {
		if e.kind == "" {
			return nil // it is empty
		}
		progress = true
		var err error
		if ended, err = dispatch(e.kind, e.data, show); err == nil && ended == nil {
			*last = cmp.Or(e.id, *last)
		}
		if ended != nil {
			err = errEnded
		}
		return err
	})
	if ended != nil {
		err = nil
	}
	return ended, progress, err
}

// errEnded stops reading a stream after its last event.
var errEnded = errors.New("the stream has ended")

// dispatch handles an event. It returns the run with the last one.
func dispatch(kind, data string, show func(OutputPart) error) (*Run, error) {
	switch kind {
	case "output":
		var part OutputPart
		if err := json.Unmarshal([]byte(data), &part); err != nil {
			return nil, fmt.Errorf("read output: %w", err)
		}
		return nil, show(part)
	case "end":
		var run Run
		if err := json.Unmarshal([]byte(data), &run); err != nil {
			return nil, fmt.Errorf("read output: %w", err)
		}
		return &run, nil
	case "problem":
		var p Problem
		if err := json.Unmarshal([]byte(data), &p); err != nil {
			return nil, fmt.Errorf("read output: %w", err)
		}
		return nil, &p
	}
	return nil, nil // an event of a later version
}
