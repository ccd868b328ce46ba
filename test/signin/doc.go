// Package signin signs people in at a real OpenID provider, the one of zitadel/oidc, which the
// test runs. It is a module of its own, because of that library.
package signin
