// Package record is the format in which a witness writes down what it saw: a line for the start of a run and
// one for its end, each with a checksum.
package record

import (
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"time"
)

// An Event is one line of a witness.
type Event struct {
	End       bool
	Job       string
	PID       int
	Scheduled time.Time // zero if the scheduler does not tell its commands
	Start     time.Time
	At        time.Time // of the start or of the end
	Exit      int
}

// String is the event as a line, without the newline.
func (e Event) String() string {
	kind, scheduled := "start", "-"
	if e.End {
		kind = "end"
	}
	if !e.Scheduled.IsZero() {
		scheduled = e.Scheduled.UTC().Format(time.RFC3339Nano)
	}
	line := fmt.Sprintf("%s %s %d %s %d %d %d", kind, e.Job, e.PID, scheduled, e.Start.UnixNano(), e.At.UnixNano(), e.Exit)
	return fmt.Sprintf("%s %08x", line, crc32.ChecksumIEEE([]byte(line)))
}

// Append writes the event to the end of a file by one call of the system, so that lines of several processes do
// not mix.
func Append(path string, e Event) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(e.String() + "\n")
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// Parse reads a line that a witness has written whole.
func Parse(line string) (Event, error) {
	text, sum, _ := cutLast(line)
	if fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text))) != sum {
		return Event{}, fmt.Errorf("the checksum is not that of the line %q", line)
	}
	words := strings.Split(text, " ")
	if len(words) != 7 || words[0] != "start" && words[0] != "end" {
		return Event{}, fmt.Errorf("no line of a witness: %q", line)
	}
	e := Event{End: words[0] == "end", Job: words[1]}
	var numbers [4]int64
	for i, n := range []int{2, 4, 5, 6} {
		var err error
		if numbers[i], err = strconv.ParseInt(words[n], 10, 64); err != nil {
			return Event{}, fmt.Errorf("no line of a witness: %q: %w", line, err)
		}
	}
	e.PID, e.Start, e.At, e.Exit = int(numbers[0]), time.Unix(0, numbers[1]), time.Unix(0, numbers[2]), int(numbers[3])
	if words[3] != "-" {
		var err error
		if e.Scheduled, err = time.Parse(time.RFC3339Nano, words[3]); err != nil {
			return Event{}, fmt.Errorf("no line of a witness: %q: %w", line, err)
		}
	}
	return e, nil
}

func cutLast(line string) (before, after string, found bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 {
		return line, "", false
	}
	return line[:i], line[i+1:], true
}
