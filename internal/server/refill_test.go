package server

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/store"
)

func TestChangedDefaultsAreLogged(t *testing.T) {
	for name, c := range map[string]struct {
		told []store.Refill
		want []string // in the lines
	}{
		"of many jobs": {
			[]store.Refill{
				{Jobs: 1000, Took: time.Millisecond},
				{Jobs: 1000, Looked: 600, Changed: 7, Took: 10 * time.Second},
				{Jobs: 1000, Looked: 600, Changed: 7, Took: 12 * time.Second, Err: errors.New("no disk")},
				{Jobs: 1000, Looked: 1000, Changed: 9, Took: 20 * time.Second, Over: true},
			},
			[]string{
				"level=INFO msg=\"the defaults have changed since the last start; applying them to jobs that do not override them\" jobs=1000",
				"level=INFO msg=\"applying the changed defaults\" looked_at=600 jobs=1000 changed=7 for=10s",
				"level=ERROR msg=\"cannot apply the changed defaults to all jobs; retrying\" looked_at=600 error=\"no disk\"",
				"level=INFO msg=\"applied the changed defaults to all jobs\" jobs=1000 changed=9 took=20s",
			},
		},
		"that others have changed since": {
			[]store.Refill{{Jobs: 10}, {Jobs: 10, Looked: 5, Changed: 2, Superseded: true}},
			[]string{"jobs=10", "level=WARN msg=\"another server started with other defaults; this server stops applying its own\" looked_at=5 changed=2"},
		},
		"without jobs": {[]store.Refill{{}, {Over: true}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			tell := tellRefill(slog.New(slog.NewTextHandler(&log, nil)))
			for _, is := range c.told {
				tell(is)
			}
			lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
			if log.Len() == 0 {
				lines = nil
			}
			if len(lines) != len(c.want) {
				t.Fatalf("the log is\n%s", log.String())
			}
			for i, want := range c.want {
				if !strings.HasSuffix(lines[i], want) {
					t.Errorf("line %d is\n%s\nwant\n%s", i, lines[i], want)
				}
			}
		})
	}
}
