package node

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-cron/belfry/internal/check/logtest"
)

func TestSilentStoreIsLoggedOnce(t *testing.T) {
	const away, back = "the store does not respond", "the store responds again"
	broken := errors.New("lock timeout")
	type call struct {
		from, to time.Duration // since the start of the test
		err      error
	}
	for _, c := range []struct {
		name  string
		calls []call
		want  []string
	}{
		{"calls that take long, but not very", []call{{from: 0, to: 4 * time.Second}, {from: 1 * time.Second, to: 5 * time.Second}}, nil},
		{"one call", []call{{from: 0, to: 12 * time.Second}}, []string{"5s " + away, "12s " + back}},
		{
			"several calls, while another one is answered", []call{{from: 0, to: 12 * time.Second}, {from: 1 * time.Second, to: 11 * time.Second}, {from: 7 * time.Second, to: 8 * time.Second}},
			[]string{"5s " + away, "12s " + back},
		},
		{
			"calls that are given up, and made again", []call{{0, 10 * time.Second, broken}, {11 * time.Second, 21 * time.Second, broken}, {from: 22 * time.Second, to: 23 * time.Second}},
			[]string{"5s " + away, "23s " + back},
		},
		{"twice", []call{{from: 0, to: 6 * time.Second}, {from: 7 * time.Second, to: 14 * time.Second}}, []string{"5s " + away, "6s " + back, "12s " + away, "14s " + back}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				text := &logtest.Log{}
				// Lines have the time of the bubble.
				s := &slow{log: slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey {
						return slog.String("at", time.Since(begun).String())
					}
					return a
				}})), store: "postgres://db"}
				for _, one := range c.calls {
					go func() {
						time.Sleep(one.from)
						ended := s.call("claim")
						time.Sleep(one.to - one.from)
						ended(one.err)
					}()
				}
				time.Sleep(time.Minute)
				var got []string
				for _, line := range text.Lines("") {
					at, _, _ := strings.Cut(strings.TrimPrefix(line, "at="), " ")
					what := back
					if strings.Contains(line, away) {
						what = away
					}
					got = append(got, at+" "+what)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("the log says %q, want %q", got, c.want)
				}
			})
		})
	}
}
