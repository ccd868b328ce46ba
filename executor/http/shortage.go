package httpexec

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/job"
)

// shortageRest is how long an attempt keeps its capacity in a shortage before it is retried: a
// shortage lasts seconds, and each try costs the store two calls.
const shortageRest = 2 * time.Second

// isShortage reports whether an error means that the machine is out of files or connections
// at the moment.
func isShortage(err error) bool {
	shortages := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EAGAIN}
	// The resolver keeps only the text of the cause.
	var unknownName *net.DNSError
	return slices.ContainsFunc(shortages, func(e error) bool {
		return errors.Is(err, e) || errors.As(err, &unknownName) && strings.HasSuffix(unknownName.Err, e.Error())
	})
}

// short is the result of an attempt that sent nothing because the machine was out of resources. It
// keeps its capacity for a while, so that it is not retried in a tight loop.
func (e *Executor) short(ctx context.Context, why job.Reason) executor.Result {
	timer := time.NewTimer(e.shortageRest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return executor.Result{Outcome: job.OutcomeFailed, Reason: why.Map(shorten), Unstarted: true}
}
