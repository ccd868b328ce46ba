package service

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Error is the reason of a refused or failed request.
type Error struct {
	Type client.ProblemType
	// Detail describes the problem, and Hint the remedy.
	Detail, Hint job.Reason
	// Errors are the mistakes in the request, [ErrorsMax] at most.
	Errors []client.FieldError
	// MoreErrors counts the mistakes that are not in Errors.
	MoreErrors int
	// Version is the current version of the object, with [client.TypeChanged] if known.
	Version int64
	// RetryAfter is how long to wait before the next try, where that is known.
	RetryAfter time.Duration

	cause error
}

// ErrorsMax is the most mistakes in an error: people do not read more, and a small request
// could cause a huge response.
const ErrorsMax = 100

// Error describes the problem, with the mistakes a line each.
func (e *Error) Error() string {
	return (&client.Problem{Detail: e.Detail.String(), Errors: e.Errors, MoreErrors: e.MoreErrors}).Error()
}

// Unwrap returns the cause of the error, if any.
func (e *Error) Unwrap() error { return e.cause }

// Refuse returns the refusal of a request.
func Refuse(kind client.ProblemType, detail phrase.Text, hint ...phrase.Text) *Error {
	return &Error{Type: kind, Detail: reason.Say(detail), Hint: reason.First(hint)}
}

// Because adds the cause of an error.
func (e *Error) Because(cause error) *Error {
	e.cause = cause
	return e
}

func (e *Error) hinted(hint phrase.Text) *Error {
	e.Hint = reason.Say(hint)
	return e
}

func (e *Error) withErrors(mistakes ...client.FieldError) *Error {
	room := min(ErrorsMax-len(e.Errors), len(mistakes))
	e.Errors = append(e.Errors, mistakes[:room]...)
	e.MoreErrors += len(mistakes) - room
	return e
}

// addMistakes adds the mistakes of another error.
func (e *Error) addMistakes(other *Error) {
	e.withErrors(other.Errors...)
	e.MoreErrors += other.MoreErrors
}

// mistakes counts all of them.
func (e *Error) mistakes() int { return len(e.Errors) + e.MoreErrors }

// Wrong is the error of a mistake that is not in a document.
func Wrong(mistake client.FieldError) *Error {
	return Refuse(client.TypeInvalid, phrase.RequestMistakes).withErrors(mistake)
}

// WrongParameter is the error of an invalid parameter.
func WrongParameter(name string, detail phrase.Text, hint ...phrase.Text) *Error {
	return Wrong(fieldError(client.FieldError{Parameter: name}, reason.Say(detail), reason.First(hint)))
}

// WrongField is the error of a field of the body.
func WrongField(path string, detail phrase.Text, hint ...phrase.Text) *Error {
	return Wrong(mistakeAt("", path, detail, hint...))
}

// mistakeAt returns a mistake in a field of a document, which is at the pointer.
func mistakeAt(pointer, path string, detail phrase.Text, hint ...phrase.Text) client.FieldError {
	return fieldError(client.FieldError{Pointer: pointer + Pointer(path), Path: path}, reason.Say(detail), reason.First(hint))
}

// Away reports whether the store could not be reached. Its other refusals, such as a write
// to a full disk, are also in the log.
func (e *Error) Away() bool { return errors.Is(e.cause, store.ErrAway) }

// ErrorOf returns any error of this package as an [Error]. One of [client.TypeInternal] is a
// fault of the server: its cause belongs in the log, not in the response.
func ErrorOf(err error) *Error {
	e := errorOf(err)
	if e.cause == nil && !errors.Is(err, e) {
		e.cause = err
	}
	return e
}

func errorOf(err error) *Error {
	var e *Error
	var mistakes job.Problems
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &mistakes):
		return invalid(mistakes, "")
	case errors.Is(err, store.ErrNotFound):
		return Refuse(client.TypeNotFound, phrase.OfError(err))
	case errors.Is(err, store.ErrExists):
		return Refuse(client.TypeExists, phrase.OfError(err))
	case errors.Is(err, store.ErrConflict):
		return Refuse(client.TypeConflict, phrase.OfError(err), phrase.ReadAgain)
	case errors.Is(err, store.ErrNoSpace):
		return Refuse(client.TypeUnavailable, phrase.StoreFull, phrase.NothingChanged)
	case errors.Is(err, store.ErrReadOnly):
		return Refuse(client.TypeUnavailable, phrase.StoreUnwritable, phrase.NothingChanged)
	case errors.Is(err, store.ErrHistoryAway):
		return Refuse(client.TypeUnavailable, phrase.HistoryUnread, phrase.ListedAllSame)
	case errors.Is(err, store.ErrAway):
		return Refuse(client.TypeUnavailable, phrase.StoreAway, phrase.CheckOrRetry)
	case errors.Is(err, context.DeadlineExceeded):
		return Refuse(client.TypeTimeout, phrase.StoreSlow)
	case errors.Is(err, context.Canceled):
		return Refuse(client.TypeTimeout, phrase.ClientLeft)
	}
	return Refuse(client.TypeInternal, phrase.ReasonInLog)
}

// invalid is the error of a document with mistakes. The pointer is where the document is in
// the request.
func invalid(mistakes job.Problems, pointer string) *Error {
	e := Refuse(client.TypeInvalid, mistakesIn(len(mistakes)))
	e.addProblems(mistakes, pointer)
	return e
}

// addProblems adds the problems of a document at a place in the request.
func (e *Error) addProblems(problems job.Problems, pointer string) {
	listed := problems[:min(len(problems), ErrorsMax-len(e.Errors))]
	for _, p := range listed {
		e.withErrors(fieldError(client.FieldError{Pointer: pointer + Pointer(p.Path), Path: p.Path}, p.Message, p.Hint))
	}
	e.MoreErrors += len(problems) - len(listed)
}

// fieldError returns a mistake in a place of the request.
func fieldError(at client.FieldError, detail, hint job.Reason) client.FieldError {
	at.Detail, at.Hint = detail.String(), hint.String()
	at.Code, at.Args = detail.For()
	at.HintCode, at.HintArgs = hint.For()
	return at
}

func mistakesIn(n int) phrase.Text {
	if n == 1 {
		return phrase.DocumentMistake
	}
	return phrase.DocumentMistakes.Of(n)
}

// Pointer writes the path of a field as a JSON pointer: schedule.cron[1] is
// /schedule/cron/1.
func Pointer(path string) string {
	var b strings.Builder
	add := func(key string) {
		b.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1"))
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
