package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// problemType is the type of an answer that is a problem.
const problemType = "application/problem+json"

// problem is an error on its way to a client, with the methods that the routing library
// requires.
type problem struct {
	client.Problem
	header http.Header
}

// kinds are the status and title of each kind of problem.
var kinds = map[client.ProblemType]struct {
	status int
	title  string
}{
	client.TypeMalformed:        {http.StatusBadRequest, "the request cannot be read"},
	client.TypeUnauthenticated:  {http.StatusUnauthorized, "a valid token is required"},
	client.TypeForbidden:        {http.StatusForbidden, "the token does not allow this"},
	client.TypeHostRefused:      {http.StatusForbidden, "the host of the request is not one of this server"},
	client.TypeCrossOrigin:      {http.StatusForbidden, "the request comes from another site"},
	client.TypeNotFound:         {http.StatusNotFound, "not found"},
	client.TypeMethodNotAllowed: {http.StatusMethodNotAllowed, "the method is not allowed here"},
	client.TypeExists:           {http.StatusConflict, "it already exists"},
	client.TypeConflict:         {http.StatusConflict, "the present state does not allow this"},
	client.TypeChanged:          {http.StatusPreconditionFailed, "the version has changed"},
	client.TypeVersionWanted:    {http.StatusPreconditionRequired, "the version to change must be named"},
	client.TypeTooSlow:          {http.StatusRequestTimeout, "the request arrived too slowly"},
	client.TypeTooLarge:         {http.StatusRequestEntityTooLarge, "the request is too large"},
	client.TypeMediaType:        {http.StatusUnsupportedMediaType, "the media type of the body is not supported"},
	client.TypeElsewhere:        {http.StatusMisdirectedRequest, "this node does not serve the API"},
	client.TypeInvalid:          {http.StatusUnprocessableEntity, "the request has mistakes"},
	client.TypeTooMany:          {http.StatusTooManyRequests, "too much at once"},
	client.TypeTooManyFailures:  {http.StatusTooManyRequests, "too many invalid tokens"},
	client.TypeUnavailable:      {http.StatusServiceUnavailable, "temporarily unavailable"},
	client.TypeNoSpace:          {http.StatusInsufficientStorage, "the store has no space left"},
	client.TypeSessionOver:      {http.StatusGone, "the session of the worker is over"},
	client.TypeProtocol:         {http.StatusUpgradeRequired, "the worker and the server have no version of the protocol in common"},
	client.TypeTimeout:          {http.StatusGatewayTimeout, "the request took too long"},
	client.TypeInternal:         {http.StatusInternalServerError, "internal error"},
}

// wrongParameter is the problem of a parameter or header that cannot be understood.
func wrongParameter(name, detail string) *problem {
	return problemOf(service.WrongParameter(name, phrase.Said.Of(phrase.Words(detail))))
}

// problemOf is an error of the service as a problem.
func problemOf(e *service.Error) *problem {
	kind := kinds[e.Type]
	p := &problem{Problem: client.Problem{Type: e.Type, Title: kind.title, Status: kind.status, Detail: e.Detail.String()}}
	p.Code, p.Args = e.Detail.For()
	p.Hint, p.Errors, p.MoreErrors = e.Hint.String(), e.Errors, e.MoreErrors
	p.HintCode, p.HintArgs = e.Hint.For()
	switch {
	case e.Type == client.TypeUnauthenticated:
		p.withHeader("WWW-Authenticate", challenge)
	case e.Version > 0:
		p.withHeader("ETag", etag(e.Version))
	case e.RetryAfter > 0:
		p.withHeader("Retry-After", strconv.Itoa(int(e.RetryAfter.Seconds())))
	}
	return p
}

func (p *problem) withHeader(name, value string) *problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
	return p
}

// Error describes the problem.
func (p *problem) Error() string { return p.Problem.Error() }

// GetStatus returns the HTTP status.
func (p *problem) GetStatus() int { return p.Status }

// GetHeaders returns the headers of the answer.
func (p *problem) GetHeaders() http.Header { return p.header }

// ContentType returns the type of the answer.
func (p *problem) ContentType(string) string { return problemType }

// MarshalJSON writes the problem alone.
func (p *problem) MarshalJSON() ([]byte, error) { return json.Marshal(p.Problem) }

// writeProblem answers outside of the routes' library.
func (a *api) writeProblem(w http.ResponseWriter, p *problem) {
	data, err := json.Marshal(p)
	if err != nil {
		a.Log.Error("a problem could not be written", "error", err)
		data = []byte("{}")
	}
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(data, '\n'))
}

// asProblem makes a problem of any error, and logs errors other than the caller's mistakes.
func (a *api) asProblem(ctx context.Context, err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	e := service.ErrorOf(err)
	switch cause := errors.Unwrap(e); {
	case e.Type == client.TypeInternal:
		a.Log.Error("a request failed", "error", cause, "actor", caller(ctx).Name)
	case e.Away():
		a.Log.Warn("the store could not be reached for a request", "error", cause, "actor", caller(ctx).Name)
	}
	return problemOf(e)
}

// fromLibrary converts the routing library's error about a request into a problem.
func fromLibrary(_ huma.Context, _ string, v any) (any, error) {
	model, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	kind := client.TypeInvalid
	detail := phrase.RequestMistakes
	switch model.Status {
	case http.StatusBadRequest:
		kind, detail = client.TypeMalformed, phrase.Said.Of(phrase.Words(model.Detail))
		if len(model.Errors) == 1 && model.Errors[0] != nil {
			detail, model.Errors = phrase.BodyNotJSON.Of(phrase.Words(located(model.Errors[0]).Detail)), nil
		}
	case http.StatusUnsupportedMediaType:
		kind, detail = client.TypeMediaType, phrase.BodyMustBeJSON
	case http.StatusInternalServerError:
		kind, detail = client.TypeInternal, phrase.AnswerUnmade
	}
	p := problemOf(service.Refuse(kind, detail))
	p.Status = model.Status
	for _, e := range model.Errors {
		switch {
		case e == nil:
		case len(p.Errors) == service.ErrorsMax:
			p.MoreErrors++
		default:
			p.Errors = append(p.Errors, located(e))
		}
	}
	return p, nil
}

// located says where a mistake is: body.params.day is /params/day of the body,
// query.state the parameter state.
func located(e *huma.ErrorDetail) client.FieldError {
	where, rest, _ := strings.Cut(e.Location, ".")
	field := client.FieldError{Detail: inOurWords(e.Message)}
	if path, ok := strings.CutPrefix(e.Message, noInteger); ok {
		rest, field.Detail = path, "is not a whole number in digits, of 18 at most"
	}
	switch where {
	case "query", "path", "header":
		field.Parameter, _, _ = strings.Cut(rest, "[") // for repeated ones
	default:
		field.Pointer, field.Path = service.Pointer(rest), rest
	}
	return field
}

// inList joins words for a sentence.
func inList(words []string) string { return strings.Join(words, ", ") }
