package job

import (
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/sys/spelling"
)

// The words in messages.

// quote returns a value for use in a message, cut if it is long.
func quote(value string) phrase.Quoted { return phrase.Quoted(value) }

// nearest returns a question that suggests the name nearest to the written one, none if no
// name is near.
func nearest(written string, names []string) phrase.Text {
	near := spelling.Near(written, names)
	if len(near) == 0 {
		return phrase.Text{}
	}
	return phrase.DidYouMean.Of(quote(near[0]))
}
