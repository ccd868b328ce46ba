package robfig

import (
	"bytes"
	"log"
	"log/slog"
	"strings"
	"testing"
)

// What the scheduler logs has its cause where robfig's loggers have it.
func TestTheErrorOfAFailedRunIsItsReason(t *testing.T) {
	var output bytes.Buffer
	slog.New(slogTo{PrintfLogger(log.New(&output, "", 0))}).Error("a run has failed", "job", "a", "reason", "panic: boom", "attempt", 1)
	if want := "a run has failed, error=panic: boom, job=a, attempt=1"; !strings.Contains(output.String(), want) {
		t.Errorf("the log has %q, want %q", output.String(), want)
	}
}
