package cli

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/server"
	"github.com/belfry-cron/belfry/internal/server/config"
)

// signInWithin bounds how long doctor waits for the provider of sign-ins.
const signInWithin = 15 * time.Second

// signIn checks whether people can sign in at the provider.
func signIn(ctx context.Context, env Env, c config.Server) finding {
	ctx, cancel := context.WithTimeout(ctx, signInWithin)
	defer cancel()
	f := finding{Check: "sign-in", Status: isWell, Found: "the provider " + string(c.OIDC.Issuer) + " answers"}
	if err := server.CheckSignIn(ctx, c.OIDC, env.Now); err != nil {
		f.Status, f.Found = isWrong, err.Error()
		f.Do = "people can sign in with tokens only; check oidc.issuer, oidc.ca and the client secret, and that this machine reaches the provider"
	}
	return f
}
