// Package client calls the HTTP API of a Belfry server, and has the types that
// the API answers with. The server uses the same types, so that the two cannot
// drift apart.
//
// Jobs, calendars and pools travel as documents, the form that files have; see
// package job. Errors that the server has answered with are of type *Problem,
// and ErrUnreachable is what there is when no server has answered.
package client
