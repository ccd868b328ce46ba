package doctor

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/server"
	"github.com/belfry-cron/belfry/internal/server/config"
)

// signInWithin bounds how long doctor waits for the provider of sign-ins.
const signInWithin = 15 * time.Second

// SignIn checks whether people can sign in at the provider.
func SignIn(ctx context.Context, c config.Server, now func() time.Time) Finding {
	ctx, cancel := context.WithTimeout(ctx, signInWithin)
	defer cancel()
	f := Finding{Check: "sign-in", Status: Well, Found: "the provider " + string(c.OIDC.Issuer) + " answers"}
	if err := server.CheckSignIn(ctx, c.OIDC, now); err != nil {
		f.Status, f.Found = Wrong, err.Error()
		f.Do = "people can sign in with tokens only; check oidc.issuer, oidc.ca and the client secret, and that this machine reaches the provider"
	}
	return f
}
