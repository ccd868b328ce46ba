package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// problemType is the type of an answer that is a problem.
const problemType = "application/problem+json"

// problem is an error on its way to a client. The methods are those that the
// routes' library asks for.
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
	client.TypeUnauthenticated:  {http.StatusUnauthorized, "a valid token is needed"},
	client.TypeForbidden:        {http.StatusForbidden, "the token may not do this"},
	client.TypeHostRefused:      {http.StatusForbidden, "the host of the request is not one of this server"},
	client.TypeCrossOrigin:      {http.StatusForbidden, "the request comes from another site"},
	client.TypeNotFound:         {http.StatusNotFound, "there is no such thing"},
	client.TypeMethodNotAllowed: {http.StatusMethodNotAllowed, "the method is not allowed here"},
	client.TypeExists:           {http.StatusConflict, "it exists already"},
	client.TypeConflict:         {http.StatusConflict, "it is not in a state for this"},
	client.TypeChanged:          {http.StatusPreconditionFailed, "it has another version"},
	client.TypeVersionWanted:    {http.StatusPreconditionRequired, "the version to change must be named"},
	client.TypeTooSlow:          {http.StatusRequestTimeout, "the request came too slowly"},
	client.TypeTooLarge:         {http.StatusRequestEntityTooLarge, "the request is too large"},
	client.TypeMediaType:        {http.StatusUnsupportedMediaType, "the type of the body is not known"},
	client.TypeElsewhere:        {http.StatusMisdirectedRequest, "this node does not answer the API"},
	client.TypeInvalid:          {http.StatusUnprocessableEntity, "the request has mistakes"},
	client.TypeTooMany:          {http.StatusTooManyRequests, "too much at once"},
	client.TypeTooManyFailures:  {http.StatusTooManyRequests, "too many wrong tokens"},
	client.TypeUnavailable:      {http.StatusServiceUnavailable, "it cannot be done for now"},
	client.TypeTimeout:          {http.StatusGatewayTimeout, "it took too long"},
	client.TypeInternal:         {http.StatusInternalServerError, "something went wrong inside"},
}

// refuse makes a problem; the format says what is wrong this time.
func refuse(kind client.ProblemType, format string, args ...any) *problem {
	k := kinds[kind]
	return &problem{Problem: client.Problem{Type: kind, Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...)}}
}

// wrongRequest is the problem of a mistake that is not in a document.
func wrongRequest(mistake client.FieldError) *problem {
	return refuse(client.TypeInvalid, "%s", kinds[client.TypeInvalid].title).withErrors(mistake)
}

// wrongParameter is the problem of a parameter or header that cannot be understood.
func wrongParameter(name, detail, hint string) *problem {
	return wrongRequest(client.FieldError{Parameter: name, Detail: detail, Hint: hint})
}

func (p *problem) withHint(format string, args ...any) *problem {
	p.Hint = fmt.Sprintf(format, args...)
	return p
}

func (p *problem) withErrors(errs ...client.FieldError) *problem {
	p.Errors = append(p.Errors, errs...)
	return p
}

func (p *problem) withHeader(name, value string) *problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
	return p
}

// Error returns what is wrong.
func (p *problem) Error() string { return p.Problem.Error() }

// GetStatus returns the HTTP status.
func (p *problem) GetStatus() int { return p.Status }

// GetHeaders returns what the answer has beside the problem.
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

// asProblem makes a problem of any error. What is nobody's mistake outside is
// logged, and not told.
func (a *api) asProblem(ctx context.Context, err error) *problem {
	var p *problem
	var mistakes job.Problems
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &mistakes):
		return invalid(mistakes, "")
	case errors.Is(err, store.ErrNotFound):
		return refuse(client.TypeNotFound, "%v", err)
	case errors.Is(err, store.ErrExists):
		return refuse(client.TypeExists, "%v", err)
	case errors.Is(err, store.ErrConflict):
		return refuse(client.TypeConflict, "%v", err).withHint("read it again, and decide again")
	case errors.Is(err, store.ErrNoSpace):
		return refuse(client.TypeUnavailable, "the store has no space left").withHint("nothing was changed")
	case errors.Is(err, store.ErrReadOnly):
		return refuse(client.TypeUnavailable, "the store is read-only").withHint("nothing was changed")
	case errors.Is(err, store.ErrAway):
		a.Log.Warn("the store could not be reached for a request", "error", err, "actor", actorOf(ctx))
		return refuse(client.TypeUnavailable, "the store cannot be reached").withHint("see what was done, or try again")
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(client.TypeTimeout, "the store did not answer within %s", requestTime)
	case ctx.Err() != nil:
		return refuse(client.TypeTimeout, "the client has gone away")
	}
	a.Log.Error("a request failed", "error", err, "actor", actorOf(ctx))
	return refuse(client.TypeInternal, "the reason is in the log of the server")
}

// invalid is the problem of a document with mistakes. The pointer is where the
// document stands in the request.
func invalid(mistakes job.Problems, pointer string) *problem {
	p := refuse(client.TypeInvalid, "%s", mistakesIn(len(mistakes)))
	for _, m := range mistakes {
		p.Errors = append(p.Errors, client.FieldError{
			Pointer: pointer + pointerOf(m.Path), Path: m.Path, Detail: m.Message, Hint: m.Hint,
		})
	}
	return p
}

func mistakesIn(n int) string {
	if n == 1 {
		return "the document has a mistake"
	}
	return fmt.Sprintf("the document has %d mistakes", n)
}

// pointerOf writes a path of a document as a JSON pointer: schedule.cron[1] is
// /schedule/cron/1.
func pointerOf(path string) string {
	var b strings.Builder
	add := func(key string) {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key))
	}
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			if quoted, err := strconv.QuotedPrefix(path[1:]); err == nil {
				key, _ := strconv.Unquote(quoted)
				add(key)
				path = strings.TrimPrefix(path[1+len(quoted):], "]")
				continue
			}
			index, rest, _ := strings.Cut(path[1:], "]")
			add(index)
			path = rest
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			add(path[:end])
			path = path[end:]
		}
	}
	return b.String()
}

// fromLibrary turns what the routes' library says about a request into a
// problem.
func fromLibrary(ctx huma.Context, _ string, v any) (any, error) {
	model, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	kind := client.TypeInvalid
	detail := kinds[kind].title
	switch model.Status {
	case http.StatusBadRequest:
		kind, detail = client.TypeMalformed, model.Detail
	case http.StatusRequestEntityTooLarge:
		kind, detail = client.TypeTooLarge, fmt.Sprintf("the body has more than %d bytes", bodyMax)
	case http.StatusUnsupportedMediaType:
		kind, detail = client.TypeMediaType, "the body must be application/json"
	case http.StatusRequestTimeout:
		kind, detail = client.TypeTooSlow, fmt.Sprintf("the body did not arrive within %s", bodyTime)
		ctx.SetHeader("Connection", "close") // what still comes of the body is no request
	case http.StatusInternalServerError:
		kind, detail = client.TypeInternal, "the answer could not be made"
	}
	p := refuse(kind, "%s", detail)
	p.Status = model.Status
	for _, e := range model.Errors {
		if e != nil {
			p.Errors = append(p.Errors, located(e))
		}
	}
	if len(p.Errors) == 1 && model.Status == http.StatusBadRequest {
		p.Detail, p.Errors = "the body is not JSON: "+p.Errors[0].Detail, nil
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
		field.Parameter, _, _ = strings.Cut(rest, "[") // of those that are repeated
	default:
		field.Pointer, field.Path = pointerOf(rest), rest
	}
	return field
}

// inList joins words for a sentence.
func inList(words []string) string { return strings.Join(words, ", ") }
