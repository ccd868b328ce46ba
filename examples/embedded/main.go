// Command embedded is a web service with its own scheduled jobs, one instance or many:
//
//	go run ./examples/embedded                                  # SQLite in belfry.db, one instance
//	DATABASE_URL=postgres://… LISTEN=:8081 go run ./examples/embedded
//	curl -X POST localhost:8080/reports/2026
//
// With PostgreSQL start it several times: each tick runs in one instance, and any of them answers
// for a report that another one makes.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// Year is the input of a report.
type Year struct {
	Year int `json:"year"`
}

// Report is the result.
type Report struct {
	Year, Orders int
	Node         string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func open() store.Opener {
	if url := os.Getenv("DATABASE_URL"); url != "" {
		return postgres.URL(url)
	}
	return sqlite.File(cmp.Or(os.Getenv("DATABASE_FILE"), "belfry.db"))
}

func run(ctx context.Context) error {
	s := belfry.New(open(), belfry.WithNamespace("shop"))
	report := belfry.Handle(s, "report", makeReport)
	s.Job("tick", belfry.Every(time.Second), belfry.Description("Says the time."), belfry.Func(tick))
	s.Job("report", report.Do(Year{time.Now().Year()}), belfry.Retry(3, time.Second), belfry.Timeout(time.Minute))

	mux := http.NewServeMux()
	mux.HandleFunc("POST /reports/{year}", func(w http.ResponseWriter, r *http.Request) {
		var in Year
		if _, err := fmt.Sscan(r.PathValue("year"), &in.Year); err != nil {
			http.Error(w, "not a year", http.StatusBadRequest)
			return
		}
		// The request may be sent twice: the key makes it one run.
		id, err := report.Trigger(r.Context(), "report", in, belfry.Key(r.Header.Get("Idempotency-Key")))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		result, err := report.Result(r.Context(), id)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(result)
	})
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	fmt.Println("listening on", listener.Addr())

	var group sync.WaitGroup
	group.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Print(err)
		}
	})
	err = s.Run(ctx) // returns when the handlers have ended
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(closing))
	group.Wait()
	return err
}

func tick(_ context.Context, run *belfry.Run) error {
	fmt.Println("tick", run.Scheduled.Format(time.TimeOnly))
	return nil
}

func makeReport(ctx context.Context, run *belfry.Run, in Year) (Report, error) {
	if in.Year < 2000 {
		return Report{}, belfry.Permanent(fmt.Errorf("there are no orders of %d", in.Year))
	}
	const months = 12
	orders := 0
	for month := range months {
		select {
		case <-ctx.Done(): // the run was cancelled or timed out, or the node stops
			return Report{}, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond): // the work
		}
		orders += 100 + month
		run.Progress(int64(month+1), months)
	}
	return Report{in.Year, orders, run.Node}, nil
}
