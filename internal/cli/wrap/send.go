package wrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfry-cron/belfry/client"
)

// sender brings reports to a server.
type sender struct {
	server    Server
	address   string
	spool     *Spool
	warn      func(format string, args ...any)
	complaint string // the latest complaint
}

// requestWithin bounds a request: a server that accepts without answering is away.
const requestWithin = 10 * time.Second

// start reports the start of an entry, or that it is still running. It returns by when its end
// must be reported or this be repeated.
func (s *sender) start(ctx context.Context, e *entry, lock bool) (time.Time, error) {
	report := client.Report{State: client.ReportStarted, Run: e.Run, At: e.Started, Lock: lock}
	key := e.Key + "-start"
	if !e.Run.IsZero() {
		key, report.At = "", time.Time{}
	}
	got, err := s.send(ctx, e, report, key)
	if err == nil && e.Run.IsZero() {
		e.Run = got.Run
	}
	return got.Until, err
}

// deliver reports the end of an entry, and its start before that if no server has it.
func (s *sender) deliver(ctx context.Context, e *entry) error {
	if e.End.State != client.ReportSkipped {
		if e.Run.IsZero() {
			if _, err := s.start(ctx, e, false); err != nil {
				return err
			}
		}
		e.End.Run = e.Run
	}
	_, err := s.send(ctx, e, *e.End, e.Key)
	return err
}

// send sends a report, and the job as well if the server's version differs from the one here.
func (s *sender) send(ctx context.Context, e *entry, r client.Report, key string) (client.Reported, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	if e.fresh && e.Document != nil && !s.spool.isKnown(e) {
		if err := s.apply(ctx, e); err != nil {
			return client.Reported{}, err
		}
	}
	got, err := s.server.Report(ctx, e.Namespace, e.Name, r, key)
	if e.Document == nil || !client.IsType(err, client.TypeNotFound) {
		return got, err
	}
	s.spool.forget(e) // it was deleted
	if err := s.apply(ctx, e); err != nil {
		return client.Reported{}, err
	}
	return s.server.Report(ctx, e.Namespace, e.Name, r, key)
}

func (s *sender) apply(ctx context.Context, e *entry) error {
	_, err := s.server.Apply(ctx, client.Apply{Documents: []client.Document{{RawMessage: e.Document}}})
	if err != nil {
		return fmt.Errorf("create or change the job: %w", err)
	}
	s.spool.know(e)
	return nil
}

// isFinal reports whether a server will refuse a report however often it is sent.
func isFinal(err error) bool {
	for _, kind := range []client.ProblemType{client.TypeNotFound, client.TypeConflict, client.TypeInvalid, client.TypeMalformed, client.TypeTooLarge} {
		if client.IsType(err, kind) {
			return true
		}
	}
	return false
}

// complain reports a problem with reports, once. A silent server is no subject for the mail of a
// cron job: the spool keeps the report.
func (s *sender) complain(err error) {
	var p *client.Problem
	if !errors.As(err, &p) || client.IsType(err, client.TypeUnavailable) || client.IsType(err, client.TypeTimeout) {
		return
	}
	text := fmt.Sprintf("the report waits in the spool: %v", err)
	if isFinal(err) {
		text = fmt.Sprintf("the report is refused: %v", err)
	}
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	if s.complaint != text {
		s.complaint = text
		s.warn("%s", text)
	}
}

// Flushed counts the results of sending a spool.
type Flushed struct {
	Sent    int
	Refused int // and removed
	Old     int // given up
	Left    int // for another server, or because this one is silent
}

// Flush sends what a spool has for a server.
func Flush(ctx context.Context, server Server, address string, spool *Spool, warn func(format string, args ...any)) (Flushed, error) {
	s := &sender{server: server, address: address, spool: spool, warn: warn}
	return s.Flush(ctx)
}

// Flush sends the spooled reports for the server, oldest first, until the server does not answer.
func (s *sender) Flush(ctx context.Context) (f Flushed, failed error) {
	list, err := s.spool.List()
	if err != nil {
		return f, err
	}
	for _, w := range list {
		r, e := open(w.Path)
		switch {
		case r == nil: // its command is running, or another process sends it
		case e == nil || time.Since(w.At) > ageMax:
			r.Remove()
			f.Old++
		case e.Server != s.address || failed != nil || ctx.Err() != nil || !s.isOver(e, w.At):
			f.Left++
		default:
			err := s.deliver(ctx, e)
			switch {
			case err == nil:
				f.Sent++
				r.Remove()
			case isFinal(err):
				f.Refused++
				r.Remove()
				s.complain(err)
			default:
				f.Left++
				failed = err
			}
		}
		r.Release()
	}
	if f.Old > 0 {
		s.warn("given up: %d reports that were unreadable or older than %s", f.Old, ageMax)
	}
	return f, failed
}

// isOver reports whether a command has ended whose process is gone. If it did not say how, it was
// killed, and its command with a lock may still be running.
func (s *sender) isOver(e *entry, at time.Time) bool {
	if e.End != nil {
		return true
	}
	if e.Locked {
		free, err := s.spool.lock(e.Namespace, e.Name)
		if err != nil || free == nil {
			return false
		}
		free.release()
	}
	e.End = &client.Report{
		State: client.ReportFailed, At: at,
		Reason: "belfry exec ended before its command: it was killed, or the machine went down",
	}
	return true
}
