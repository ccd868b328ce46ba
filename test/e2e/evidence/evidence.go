// Package evidence is what jobs of the end-to-end tests write down about
// themselves, and what must hold of it. What a server says of its runs is compared
// with what the jobs have seen, never trusted alone.
//
// It reads no clock and touches no file.
package evidence

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Event is one line that a job has written about an attempt.
type Event struct {
	Kind      Kind
	Job       string // namespace/name
	Run       string
	Attempt   int
	Scheduled time.Time // as the job received it; zero without one
	PID       int
	At        time.Time
	// Detail is the exit code of an end, and else more in one word.
	Detail string
}

// Kind is what happened.
type Kind string

// What a job writes down.
const (
	Start Kind = "start"
	End   Kind = "end"
	// Term is a SIGTERM that has come.
	Term Kind = "term"
	// Contended is written right after a start that has found its slots taken
	// by attempts that live: they are locks that the kernel frees with a process.
	Contended Kind = "contended"
)

// none stands for an empty word of a line.
const none = "-"

// Line returns the event as one line, with its end.
func (e Event) Line() string {
	scheduled := none
	if !e.Scheduled.IsZero() {
		scheduled = e.Scheduled.UTC().Format(time.RFC3339Nano)
	}
	words := []string{
		string(e.Kind), e.Job, e.Run, strconv.Itoa(e.Attempt), scheduled, strconv.Itoa(e.PID),
		strconv.FormatInt(e.At.UnixNano(), 10), e.Detail,
	}
	for i := range words {
		if words[i] == "" {
			words[i] = none
		}
	}
	return strings.Join(words, " ") + "\n"
}

// Parse reads lines. A last line without an end is one that is being written, and
// left out.
func Parse(text string) ([]Event, error) {
	var events []Event
	for n := 1; ; n++ {
		line, rest, whole := strings.Cut(text, "\n")
		if !whole {
			return events, nil
		}
		text = rest
		e, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", n, line, err)
		}
		events = append(events, e)
	}
}

func parseLine(line string) (e Event, err error) {
	const words = 8
	w := strings.Fields(line)
	if len(w) != words {
		return e, fmt.Errorf("%d words, want %d", len(w), words)
	}
	for i := range w {
		if w[i] == none {
			w[i] = ""
		}
	}
	e = Event{Kind: Kind(w[0]), Job: w[1], Run: w[2], Detail: w[7]}
	if e.Attempt, err = strconv.Atoi(w[3]); err != nil {
		return e, err
	}
	if w[4] != "" {
		if e.Scheduled, err = time.Parse(time.RFC3339Nano, w[4]); err != nil {
			return e, err
		}
	}
	if e.PID, err = strconv.Atoi(w[5]); err != nil {
		return e, err
	}
	at, err := strconv.ParseInt(w[6], 10, 64)
	e.At = time.Unix(0, at)
	return e, err
}
