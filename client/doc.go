// Package client calls the HTTP API of a Belfry server and defines its types. The server
// uses the same types, so the two cannot drift apart.
//
// Jobs, calendars and pools travel as documents, in the same form as in files; see package
// job. An error in a server's answer is a *Problem; if no server answers, the error wraps
// [ErrUnreachable].
package client
