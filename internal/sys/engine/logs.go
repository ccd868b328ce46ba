package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// frameMax bounds a frame of output: engines part longer lines.
const frameMax = 16 << 20

// headerSize is the length of the header of each frame: stream, three zeros, and length.
const headerSize = 8

// Mark is a place in the output of a container: the time of the last frame that was read, and how
// many frames of that time were.
type Mark struct {
	Time  string
	Count int
}

// Logs writes the output of a container from a mark on, and moves the mark. With follow it returns
// at the end of the container.
func (e *Engine) Logs(ctx context.Context, name string, follow bool, from *Mark, stdout, stderr io.Writer) error {
	query := url.Values{"stdout": {"1"}, "stderr": {"1"}, "timestamps": {"1"}}
	if follow {
		query.Set("follow", "1")
	}
	if since, err := time.Parse(time.RFC3339Nano, from.Time); err == nil {
		since = since.Add(-time.Millisecond) // engines differ on whether the moment is included
		query.Set("since", fmt.Sprintf("%d.%09d", since.Unix(), since.Nanosecond()))
	}
	answer, err := e.send(ctx, http.MethodGet, "/containers/"+name+"/logs", query, nil, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return copyFrames(answer.Body, from, stdout, stderr)
}

// copyFrames writes the frames after a mark, without their times.
func copyFrames(from io.Reader, mark *Mark, stdout, stderr io.Writer) error {
	begin := *mark
	seen := 0 // number of frames at the time of begin
	header := make([]byte, headerSize)
	var frame bytes.Buffer
	for {
		if _, err := io.ReadFull(from, header); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		size := int64(binary.BigEndian.Uint32(header[4:]))
		if size > frameMax {
			return fmt.Errorf("a frame of output has %d bytes", size)
		}
		frame.Reset()
		if _, err := io.CopyN(&frame, from, size); err != nil {
			return err
		}
		moment, text, _ := strings.Cut(frame.String(), " ")
		if begin.Time != "" {
			switch {
			case isBefore(moment, begin.Time):
				continue
			case moment == begin.Time:
				if seen++; seen <= begin.Count {
					continue
				}
			}
		}
		if moment == mark.Time {
			mark.Count++
		} else {
			*mark = Mark{moment, 1}
		}
		to := stdout
		if header[0] == 2 {
			to = stderr
		}
		if _, err := io.WriteString(to, text); err != nil {
			return err
		}
	}
}

func isBefore(a, b string) bool {
	first, err := time.Parse(time.RFC3339Nano, a)
	second, err2 := time.Parse(time.RFC3339Nano, b)
	return err == nil && err2 == nil && first.Before(second)
}
