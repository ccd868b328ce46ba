package xxlexec

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/internal/xxl"
)

const (
	// forwardsMax is how many requests wait for the other admin. Registrations come again, so
	// that the oldest may be dropped.
	forwardsMax = 1000
	// forwardTries is how often one is sent, and forwardRest the time between two tries, which
	// doubles.
	forwardTries = 5
	forwardRest  = time.Second
	forwarders   = 4
)

// forward is a request that is passed to another admin.
type forward struct {
	path, header string
	body         []byte
}

// forwards are requests that wait for the other admin.
type forwards struct{ queue chan forward }

func (f *forwards) init() { f.queue = make(chan forward, forwardsMax) }

// add passes a request on, soon. When too many wait the oldest is dropped.
func (f *forwards) add(one forward) {
	for {
		select {
		case f.queue <- one:
			return
		default:
		}
		select {
		case <-f.queue:
		default:
		}
	}
}

// run passes requests on until ctx ends.
func (f *forwards) run(ctx context.Context, a *Admin) {
	failing := trouble.With(a.log, "requests of executors cannot be passed on to the other admin", "requests of executors are passed on to the other admin again")
	done := make(chan struct{})
	for range forwarders {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-ctx.Done():
					return
				case one := <-f.queue:
					failing.Saw(a.passOn(ctx, one))
				}
			}
		}()
	}
	for range forwarders {
		<-done
	}
}

// passOn sends a request to the other admin, several times if it does not take it.
func (a *Admin) passOn(ctx context.Context, one forward) (err error) {
	rest := forwardRest
	for range forwardTries {
		s := a.current.Load()
		if s.Forward == "" {
			return nil
		}
		if err = passOnce(ctx, s, one); err == nil || one.path != pathCallback {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
			rest *= 2
		}
	}
	return err
}

func passOnce(ctx context.Context, s *settings, one forward) error {
	ctx, cancel := context.WithTimeout(ctx, dialMax+answerWait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(s.Forward, "/")+one.path, bytes.NewReader(one.body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", xxl.ContentType)
	request.Header[xxl.HeaderToken] = []string{s.Tokens[0]}
	if one.header != "" {
		request.Header[xxl.HeaderGroup] = []string{one.header}
	}
	// The administrator of the node names this address, which may be one of loopback.
	answer, err := s.caller.local.Do(request)
	if err != nil {
		return withoutURL(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, answerMax))
	if err != nil {
		return err
	}
	said, err := xxl.ReadAnswer(body)
	if err == nil && !said.OK() {
		err = fmt.Errorf("it refused: %s", said.Message)
	}
	return err
}
