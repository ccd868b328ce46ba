// Command witness is what jobs run: it writes down in a file when it starts and when it ends.
//
//	witness [-sleep DURATION] [-fail] FILE JOB [SCHEDULED]
//
// SCHEDULED is the time for which the scheduler has planned the run, in RFC 3339, if it tells it.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/belfry-cron/belfry/torture/record"
)

func main() {
	begun := time.Now()
	sleep := flag.Duration("sleep", 0, "how long the run lasts")
	fail := flag.Bool("fail", false, "end with exit status 1")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: witness [-sleep DURATION] [-fail] FILE JOB [SCHEDULED]")
		os.Exit(2)
	}
	e := record.Event{Job: flag.Arg(1), PID: os.Getpid(), Start: begun, At: begun}
	if text := flag.Arg(2); text != "" {
		var err error
		if e.Scheduled, err = time.Parse(time.RFC3339Nano, text); err != nil {
			stop(err)
		}
	}
	if err := record.Append(flag.Arg(0), e); err != nil {
		stop(err)
	}
	time.Sleep(*sleep)
	e.End, e.At = true, time.Now()
	if *fail {
		e.Exit = 1
	}
	if err := record.Append(flag.Arg(0), e); err != nil {
		stop(err)
	}
	os.Exit(e.Exit)
}

func stop(err error) {
	fmt.Fprintln(os.Stderr, "witness:", err)
	os.Exit(99) // no job asks for it
}
