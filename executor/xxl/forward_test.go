package xxlexec

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestForwardedRequestsAreBounded(t *testing.T) {
	for _, c := range []struct {
		name                    string
		requests, size          int
		left, firstLeft, warned int
	}{
		{"few", 10, 100, 10, 0, 0},
		{"many", forwardsMax + 7, 100, forwardsMax, 7, 1},
		{"large", 6, bodyMax, 4, 2, 1},
		{"larger together", forwardsMax, 2 * forwardsBytes / forwardsMax, forwardsMax / 2, forwardsMax / 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			f := newForwards(slog.New(slog.NewTextHandler(&log, nil)))
			body := make([]byte, c.size)
			for i := range c.requests {
				f.add(forward{path: fmt.Sprint(i), body: body})
				if f.bytes > forwardsBytes || len(f.queue) > forwardsMax {
					t.Fatalf("%d requests of %d bytes wait", len(f.queue), f.bytes)
				}
			}
			if n := strings.Count(log.String(), "dropped a request"); n != c.warned {
				t.Errorf("the log has %d lines, want %d:\n%s", n, c.warned, log.String())
			}
			if len(f.queue) != c.left {
				t.Fatalf("%d requests wait, want %d", len(f.queue), c.left)
			}
			for i := range c.left {
				one, ok := f.next(t.Context())
				if want := fmt.Sprint(c.firstLeft + i); !ok || one.path != want {
					t.Fatalf("request %d is %s, %t, want %s", i, one.path, ok, want)
				}
			}
			if f.bytes != 0 {
				t.Errorf("%d bytes remain", f.bytes)
			}
		})
	}
}
