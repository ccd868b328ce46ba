package server

import (
	"bytes"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestWatchdogLogsTheRunsItEnds(t *testing.T) {
	lost := store.Ends{Records: []*store.Record{{
		Run: job.Run{ID: job.ID{1}, Namespace: "web", Name: "j"}, Attempt: job.Attempt{Number: 1, Outcome: job.OutcomeLost, Reason: job.Text("its process ended")}, Final: true, Count: 1,
	}}}
	for format, want := range map[config.LogFormat]string{
		config.LogText: `level=WARN msg="a run was lost" job=web/j run=`,
		config.LogJSON: `"level":"WARN","msg":"a run was lost","job":"web/j","run":`,
	} {
		var output bytes.Buffer
		ended, flush := logEnds((&reach{LogFormat: format}).logTo(&output))
		ended(lost)
		flush()
		if !strings.Contains(output.String(), want) {
			t.Errorf("%s: the log says %q, want %q", format, output.String(), want)
		}
	}
}
