package httpexec

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belfry-cron/belfry/executor"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

// CallbackPath is the path below Config.CallbackURL for reports of results. The number of the
// handover follows it.
const CallbackPath = "/api/v1/callbacks/"

// answerMax is how long a service may take to accept a request with callback. After that it may
// have accepted it, so that the attempt waits for the result.
const answerMax = 30 * time.Second

// handOver sends a request whose result is reported later. The store records it first, so
// that a report may arrive before the answer.
func (e *Executor) handOver(ctx context.Context, client *http.Client, request *http.Request, h *job.HTTP, a executor.Attempt, out executor.Output) executor.Result {
	base := e.pool.Load().callback
	if base == "" {
		return failed(reason.NoCallbackURL.Of())
	}
	if err := a.Start(); err != nil {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(err.Error()), Unstarted: true}
	}
	secret := newSecret()
	hash := sha256.Sum256([]byte(secret))
	to := request.Method + " " + place(request.URL)
	number, err := a.HandOver(ctx, executor.Handover{Kind: string(job.WorkHTTP), To: to, About: hex.EncodeToString(hash[:])})
	if err != nil {
		return executor.Result{Outcome: job.OutcomeFailed, Reason: job.Text(err.Error()), Unstarted: true}
	}
	request.Header.Set(job.HeaderCallback, strings.TrimSuffix(base, "/")+CallbackPath+strconv.FormatInt(number, 10))
	request.Header.Set(job.HeaderCallbackSecret, secret)

	ctx, cancel := context.WithTimeoutCause(ctx, answerMax, errNoAnswer)
	defer cancel()
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	response, err := client.Do(request.WithContext(httptrace.WithClientTrace(ctx, trace)))
	switch {
	case err == nil:
	case connected.Load(): // the request may have arrived
		return executor.Result{HandedOver: true}
	case errors.Is(context.Cause(ctx), errNoAnswer):
		return failed(reason.NoConnection.Of(to, answerMax))
	case ctx.Err() != nil:
		_, why := executor.ByCause(ctx)
		return executor.Result{Outcome: job.OutcomeFailed, Reason: reason.BeforeSent.Of(reason.Because.Of(job.Text(to), why)), Unstarted: true}
	default:
		return failed(reason.RequestFailed.Of(to, reason.Words(inWords(err))))
	}
	if response.StatusCode == http.StatusAccepted {
		response.Body.Close()
		return executor.Result{HandedOver: true}
	}
	return e.judge(ctx, response, h, a, out)
}

var errNoAnswer = errors.New("the service did not answer in time")

// newSecret returns a secret that allows reports on one attempt.
func newSecret() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // crypto/rand does not fail
	return base64.RawURLEncoding.EncodeToString(random[:])
}
