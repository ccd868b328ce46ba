package httpexec_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"

	"github.com/belfry-cron/belfry/executor"
	httpexec "github.com/belfry-cron/belfry/executor/http"
	"github.com/belfry-cron/belfry/job"
)

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "attempt %s of %s\n", r.Header.Get("Belfry-Attempt"), r.Header.Get("Belfry-Job"))
	}))
	defer server.Close()

	// The server is on this machine, which is closed by default.
	e, err := httpexec.New(httpexec.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	j := &job.Job{Name: "ping", Run: job.RunSpec{HTTP: &job.HTTP{URL: server.URL}}}
	result := e.Run(context.Background(), executor.Attempt{
		Job:    j.WithDefaults(job.Defaults{}),
		Number: 1,
		Start:  func() error { return nil },
	}, executor.Output{Stdout: os.Stdout, Stderr: os.Stderr})
	fmt.Println(result.Outcome, result.HTTPStatus)
	// Output:
	// HTTP/1.1 200 OK
	// Content-Type: text/plain; charset=utf-8
	// Content-Length: 26
	//
	// attempt 1 of default/ping
	// succeeded 200
}
