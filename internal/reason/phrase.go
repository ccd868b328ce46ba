package reason

import (
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// Say converts a text of package phrase to a reason, which can be stored and sent.
func Say(t phrase.Text) job.Reason { return job.ReasonOf(t.String(), t.Code(), t.Args()) }

// First is [Say] of the first text, or no reason.
func First(texts []phrase.Text) (first job.Reason) {
	if len(texts) > 0 {
		first = Say(texts[0])
	}
	return first
}

// Problem returns a problem of a place.
func Problem(at job.Problem, message phrase.Text, hint ...phrase.Text) job.Problem {
	at.Message, at.Hint = Say(message), First(hint)
	return at
}
