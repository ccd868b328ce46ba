package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// EventQuery selects events. All set fields must match.
type EventQuery struct {
	Namespace string
	Job       string // namespace/name
	// Labels and Text select the jobs, as in [JobQuery]: then only their events and the
	// events of their runs are sent.
	Labels map[string]string
	Text   string
	Kinds  []string // such as run.done, or run for all events of runs; EventStats only if named
	// After is the id of the event to continue after; "" begins now.
	After string
}

// Events passes events to show, until ctx ends or show returns an error. It reconnects a broken
// connection and continues where that stopped; an event of the kind [EventGap] replaces lost events.
// begun, if not nil, is called for each new connection, and all events since that call are passed.
func (c *Client) Events(ctx context.Context, q EventQuery, begun func(), show func(Event) error) error {
	for failures := 0; ; failures++ {
		progress, err := c.events(ctx, &q, begun, show)
		if progress {
			failures = 0
		}
		var stops *Problem
		again := errors.Is(err, ErrUnreachable) || errors.As(err, &stops) && (stops.Type == TypeUnavailable || stops.Type == TypeTooMany)
		if !again || q.After == "" && failures == 0 || failures >= againMax {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(againAfter):
		}
	}
}

// events follows events on one connection, and reports whether it received any.
func (c *Client) events(ctx context.Context, q *EventQuery, begun func(), show func(Event) error) (progress bool, err error) {
	query := values("namespace", q.Namespace, "job", q.Job, "text", q.Text)
	for _, key := range slices.Sorted(maps.Keys(q.Labels)) {
		query.Add("label", key+"="+q.Labels[key])
	}
	for _, kind := range q.Kinds {
		query.Add("kind", kind)
	}
	header := map[string]string{}
	if q.After != "" {
		header["Last-Event-ID"] = q.After
	}
	response, err := c.send(ctx, call{method: http.MethodGet, path: "/events", query: query, header: header}, "text/event-stream")
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	err = c.readEvents(ctx, response.Body, func(sent sentEvent) error {
		if sent.kind == "problem" {
			var p Problem
			if err := json.Unmarshal([]byte(sent.data), &p); err != nil {
				return fmt.Errorf("read events: %w", err)
			}
			return &p
		}
		if !progress && begun != nil {
			begun()
		}
		progress = true
		if sent.data != "" {
			e := Event{ID: sent.id}
			if err := json.Unmarshal([]byte(sent.data), &e); err != nil {
				return fmt.Errorf("read events: %w", err)
			}
			if err := show(e); err != nil {
				return err
			}
		}
		if sent.id != "" {
			q.After = sent.id
		}
		return nil
	})
	return progress, err
}

// sentEvent is an event on the wire. One without data only moves the position.
type sentEvent struct{ id, kind, data string }

// readEvents passes the events of a response to take, until take returns an error. The
// end of the response is an error that wraps [ErrUnreachable].
func (c *Client) readEvents(ctx context.Context, body io.Reader, take func(sentEvent) error) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, eventMax)
	var e sentEvent
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			e.data += value
		case "": // the end of an event, or a comment
			if lines.Text() != "" || e == (sentEvent{}) {
				continue
			}
			if err := take(e); err != nil {
				return err
			}
			e = sentEvent{}
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := lines.Err(); err != nil {
		return c.unreachable(err)
	}
	return fmt.Errorf("%w: %s ended the connection", ErrUnreachable, c.URL())
}
