package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

// Problem is an error in a server's answer, in the form of RFC 9457.
type Problem struct {
	Type     ProblemType     `json:"type" doc:"What kind of problem it is: a stable name to branch on."`
	Title    string          `json:"title" doc:"The kind of problem in words, always the same."`
	Status   int             `json:"status" doc:"The HTTP status."`
	Detail   string          `json:"detail,omitempty" doc:"What is wrong this time, in English."`
	Code     string          `json:"code,omitempty" doc:"The code of what is wrong, which stays the same when its sentence is reworded. docs/problems.md lists them."`
	Args     *job.ReasonArgs `json:"args,omitempty" doc:"The arguments of the code by name."`
	Hint     string          `json:"hint,omitempty" doc:"What to do about it, in English."`
	HintCode string          `json:"hint_code,omitempty" doc:"The code of the hint."`
	HintArgs *job.ReasonArgs `json:"hint_args,omitempty" doc:"The arguments of the code of the hint by name."`
	// Errors are the mistakes in the request with their positions, at most 100.
	Errors []FieldError `json:"errors,omitempty" nullable:"false" doc:"The mistakes in the request, each with its place: 100 at most."`
	// MoreErrors counts the mistakes that are not listed.
	MoreErrors int `json:"more_errors,omitempty" doc:"How many mistakes there are beside those in errors."`
}

// FieldError is one mistake in a request.
type FieldError struct {
	Pointer   string          `json:"pointer,omitempty" doc:"The place in the body, as a JSON pointer (RFC 6901)."`
	Parameter string          `json:"parameter,omitempty" doc:"The parameter or header, if it is not in the body."`
	Path      string          `json:"path,omitempty" doc:"The field of the document as people write it, such as schedule.cron[1]."`
	Detail    string          `json:"detail" doc:"What is wrong, in English."`
	Code      string          `json:"code,omitempty" doc:"The code of what is wrong, which stays the same when its sentence is reworded. docs/problems.md lists them."`
	Args      *job.ReasonArgs `json:"args,omitempty" doc:"The arguments of the code by name."`
	Hint      string          `json:"hint,omitempty" doc:"What would be right, in English."`
	HintCode  string          `json:"hint_code,omitempty" doc:"The code of the hint."`
	HintArgs  *job.ReasonArgs `json:"hint_args,omitempty" doc:"The arguments of the code of the hint by name."`
	Position  int             `json:"position,omitempty" doc:"Where in an expression the mistake begins, in characters from 1."`
	Length    int             `json:"length,omitempty" doc:"How many characters of it are wrong; none if something is missing there."`
}

// ProblemType names a kind of problem. It never changes.
type ProblemType string

// The kinds of problems.
const (
	TypeMalformed        ProblemType = "urn:belfry:problem:malformed"
	TypeUnauthenticated  ProblemType = "urn:belfry:problem:unauthenticated"
	TypeForbidden        ProblemType = "urn:belfry:problem:forbidden"
	TypeHostRefused      ProblemType = "urn:belfry:problem:host-refused"
	TypeCrossOrigin      ProblemType = "urn:belfry:problem:cross-origin"
	TypeNotFound         ProblemType = "urn:belfry:problem:not-found"
	TypeMethodNotAllowed ProblemType = "urn:belfry:problem:method-not-allowed"
	TypeExists           ProblemType = "urn:belfry:problem:exists"
	TypeConflict         ProblemType = "urn:belfry:problem:conflict"
	TypeChanged          ProblemType = "urn:belfry:problem:changed"
	TypeVersionWanted    ProblemType = "urn:belfry:problem:version-wanted"
	TypeTooLarge         ProblemType = "urn:belfry:problem:too-large"
	TypeTooSlow          ProblemType = "urn:belfry:problem:too-slow"
	TypeElsewhere        ProblemType = "urn:belfry:problem:elsewhere"
	TypeMediaType        ProblemType = "urn:belfry:problem:media-type"
	TypeInvalid          ProblemType = "urn:belfry:problem:invalid"
	TypeTooMany          ProblemType = "urn:belfry:problem:too-many"
	TypeTooManyFailures  ProblemType = "urn:belfry:problem:too-many-failures"
	TypeUnavailable      ProblemType = "urn:belfry:problem:unavailable"
	TypeNoSpace          ProblemType = "urn:belfry:problem:no-space"
	TypeSessionOver      ProblemType = "urn:belfry:problem:session-over"
	TypeProtocol         ProblemType = "urn:belfry:problem:protocol"
	TypeTimeout          ProblemType = "urn:belfry:problem:timeout"
	TypeInternal         ProblemType = "urn:belfry:problem:internal"
)

// Error describes the problem, with one line for each mistake.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Title)
	if p.Detail != "" {
		b.Reset()
		b.WriteString(p.Detail)
	}
	for _, e := range p.Errors {
		b.WriteString("\n" + e.String())
	}
	if p.MoreErrors > 0 {
		fmt.Fprintf(&b, "\nand %d more", p.MoreErrors)
	}
	return b.String()
}

// String formats the mistake in one line.
func (e FieldError) String() string {
	text := e.Detail
	switch {
	case e.Path != "":
		text = e.Path + ": " + text
	case e.Parameter != "":
		text = e.Parameter + ": " + text
	case e.Pointer != "":
		text = e.Pointer + ": " + text
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// IsType reports whether an error is a problem of a kind.
func IsType(err error, kind ProblemType) bool {
	var p *Problem
	return errors.As(err, &p) && p.Type == kind
}

// ErrUnreachable is wrapped by errors of calls that no server answered.
var ErrUnreachable = errors.New("no server answered")

// errNoJob is the error for a document that is not a job.
var errNoJob = errors.New("the document is no job")

// strange is the error for a response that is not from a Belfry server, or from an
// incompatible one.
func strange(url string, status int, detail string) error {
	return fmt.Errorf("%s answered with status %d, but is not a Belfry server: %s", url, status, detail)
}
