package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/belfry-cron/belfry/client"
)

// callbackRoutes take the results of requests that were handed over. The secret that came with
// the request is the token.
func (a *api) callbackRoutes() {
	register(a, http.MethodPost, "/callbacks/{number}", "callback", "Report on a request that was sent with run.http.callback", a.callback)
}

type callbackInput struct {
	Number        int64  `path:"number" minimum:"1" doc:"The number in the address of the callback."`
	Authorization string `header:"Authorization" doc:"Bearer, and the secret that came with the request."`
	Body          client.Callback
}

func (a *api) callback(ctx context.Context, in *callbackInput) (*struct{}, error) {
	secret, ok := strings.CutPrefix(in.Authorization, "Bearer ")
	if !ok || secret == "" {
		return nil, refuse(client.TypeUnauthenticated, "the secret of the callback is missing").withHint("send it as Authorization: Bearer SECRET")
	}
	return nil, a.Service.Callbacks.Take(ctx, in.Number, secret, in.Body)
}
