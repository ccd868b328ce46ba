package httpexec_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/belfry-cron/belfry/executor"
	httpexec "github.com/belfry-cron/belfry/executor/http"
	"github.com/belfry-cron/belfry/job"
)

// BenchmarkRun is an attempt on a connection that is used again, with a server
// in the same process.
func BenchmarkRun(b *testing.B) {
	s := server(b, "", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	e := newExecutor(b, httpexec.Config{})
	a := attempt(job.HTTP{URL: s.URL + "/hook?run={{ .Run }}"})
	b.ReportAllocs()
	for b.Loop() {
		if r := e.Run(b.Context(), a, executor.Output{Stdout: io.Discard, Stderr: io.Discard}); r.Outcome != job.OutcomeSucceeded {
			b.Fatal(r.Reason)
		}
	}
}
