package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/auth"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// callbackRoutes take the results of requests that were handed over. The secret that came with
// the request is the token.
func (a *api) callbackRoutes() {
	register(a, "POST /callbacks/{number}", "callback", "Report on a request that was sent with run.http.callback", need{public: true, body: reportBody}, a.callback)
}

type callbackInput struct {
	Number        int64  `path:"number" minimum:"1" doc:"The number in the address of the callback."`
	Authorization string `header:"Authorization" doc:"Bearer, and the secret that came with the request."`
	Body          client.Callback
}

// callbackPattern is the route of callbacks.
const callbackPattern = "POST /api/v1/callbacks/{number}"

// callbackSecret returns the secret in a header.
func callbackSecret(header string) (string, error) {
	secret, ok := strings.CutPrefix(header, "Bearer ")
	if !ok || secret == "" {
		return "", problemOf(service.Refuse(client.TypeUnauthenticated, phrase.CallbackSecretMissing, phrase.SendCallbackSecret))
	}
	return secret, nil
}

// openCallback checks the secret of a callback before its body is read.
func (a *api) openCallback(r *http.Request) error {
	number, err := strconv.ParseInt(r.PathValue("number"), 10, 64)
	if err != nil || number < 1 {
		return wrongParameter("number", "is not a whole number of at least 1")
	}
	secret, err := callbackSecret(r.Header.Get("Authorization"))
	if err == nil {
		err = a.Service.Callbacks.Check(r.Context(), number, secret)
	}
	if err == nil {
		auth.Shown(r.Context())
	}
	return err
}

func (a *api) callback(ctx context.Context, in *callbackInput) (*struct{}, error) {
	secret, err := callbackSecret(in.Authorization)
	if err != nil {
		return nil, err
	}
	return nil, a.Service.Callbacks.Take(ctx, in.Number, secret, in.Body)
}
