// Package signin signs people in at a real OpenID provider, from zitadel/oidc, which the test runs.
// It is a separate module because of that library.
package signin
