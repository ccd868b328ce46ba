package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// writeTime is how long a client may take to read written data.
const writeTime = 30 * time.Second

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

// Part writes a stretch of output; it is a [service.Follower].
func (s *stream) Part(part client.OutputPart, at *service.Place) error {
	id := ""
	if at != nil {
		id = at.String()
	}
	return s.event("output", id, part)
}

// Alive keeps the connection open for proxies in between; it is a [service.Follower].
func (s *stream) Alive() error { return s.comment("alive") }

func (s *stream) write(data []byte) error {
	// Connections of tests have no deadlines.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, s.err = s.w.Write(data); s.err == nil {
		s.err = s.control.Flush()
	}
	s.last = time.Now()
	return s.err
}
