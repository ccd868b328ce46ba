// Command flow is a flow in Go: each step is a function whose result is typed where the next one
// reads it.
//
//	go run ./examples/flow
//
// It loads the files of a region, each in its own run, and publishes a report after an approval,
// which this program gives itself. With PostgreSQL in place of the memory any number of instances
// share the steps, and a flow survives all of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry"
	"github.com/belfry-cron/belfry/store/memory"
)

// Region is the input of the flow.
type Region struct {
	Region string `json:"region"`
}

// File is the result of one step and the input of another.
type File struct {
	Name string `json:"name"`
	Rows int    `json:"rows"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := belfry.New(memory.Empty())
	load := newLoad(s)
	s.Job("load-europe", belfry.Every(time.Second), load.flow.Do(Region{"europe"}))
	go load.approveAll(ctx, s)
	if err := s.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// load is the flow with the steps whose results are read.
type load struct {
	flow  *belfry.Flow[Region]
	asked chan belfry.RunID
}

func newLoad(s *belfry.Scheduler) *load {
	l := &load{flow: belfry.NewFlow[Region](s, "load", belfry.Retry(2, time.Second)), asked: make(chan belfry.RunID, 1)}

	list := belfry.Step(l.flow, "list", func(_ context.Context, _ *belfry.Run, in Region) ([]File, error) {
		return []File{{in.Region + "/orders", 12}, {in.Region + "/refunds", 3}}, nil
	})
	rows := belfry.ForEach(l.flow, "copy", list, func(_ context.Context, run *belfry.Run, _ Region, file File) (int, error) {
		run.Log.Info("copying", "file", file.Name)
		return file.Rows, nil
	}, belfry.MaxParallel(4), belfry.Timeout(time.Minute))
	ask := belfry.Step(l.flow, "ask", func(ctx context.Context, run *belfry.Run, _ Region) (belfry.None, error) {
		select {
		case l.asked <- run.Flow:
		case <-ctx.Done():
		}
		return belfry.None{}, context.Cause(ctx)
	}, belfry.Needs(rows))
	approval := l.flow.Approval("approval", "publish "+list.Template()+"?", belfry.Needs(list, ask), belfry.Within(time.Hour))
	belfry.Step(l.flow, "publish", func(_ context.Context, run *belfry.Run, in Region) (belfry.None, error) {
		counts, err := rows.Result(run)
		approved, err2 := approval.Result(run)
		fmt.Printf("%s: published %v rows, %s\n", in.Region, counts, approved.Note)
		return belfry.None{}, errors.Join(err, err2)
	}, belfry.Needs(rows, approval))
	belfry.Step(l.flow, "clean", func(_ context.Context, run *belfry.Run, in Region) (belfry.None, error) {
		fmt.Printf("%s: %s, cleaned\n", in.Region, approval.Outcome(run))
		return belfry.None{}, nil
	}, belfry.Finally())
	return l
}

// approveAll approves steps, as a person does with belfry run approve or on the page of the run.
func (l *load) approveAll(ctx context.Context, s *belfry.Scheduler) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-l.asked:
			err := s.Approve(ctx, id, "approval", "the rows are right")
			for errors.Is(err, belfry.ErrConflict) && ctx.Err() == nil { // the step has not started
				time.Sleep(10 * time.Millisecond)
				err = s.Approve(ctx, id, "approval", "the rows are right")
			}
			if err != nil && ctx.Err() == nil {
				log.Print(err)
			}
		}
	}
}
