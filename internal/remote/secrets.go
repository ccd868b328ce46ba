package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/internal/node/work"
	"github.com/belfry-cron/belfry/internal/remote/wire"
)

// errPlain refuses to request secrets over an unencrypted connection.
var errPlain = errors.New("secrets come over TLS alone, and a server of this worker has an address with http")

// Secrets returns the secrets of an attempt: see worker.Config.
func (c *Client) Secrets(ctx context.Context, of work.SecretsOf) (map[string]string, error) {
	for _, s := range c.servers {
		base, err := url.Parse(s.base)
		if err != nil || base.Scheme != "https" && !isLoopback(base.Hostname()) {
			return nil, errPlain
		}
	}
	ask := wire.SecretsOf{Attempt: wire.Attempt(of.Attempt), Names: of.Names}
	var answer wire.Secrets
	if err := c.do(ctx, call{method: http.MethodPost, path: session(of.Session) + "/secrets", body: ask, answer: &answer}); err != nil {
		return nil, err
	}
	switch {
	case answer.Missing != "":
		return nil, &secret.Missing{Namespace: of.Namespace, Name: answer.Missing, Near: answer.Near}
	case answer.Problem != "":
		return nil, errors.New(answer.Problem)
	case len(answer.Values) != len(of.Names):
		return nil, fmt.Errorf("the server has answered %d of %d secrets", len(answer.Values), len(of.Names))
	}
	return answer.Values, nil
}
