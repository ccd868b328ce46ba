package service

import (
	"context"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
)

const (
	// comparedMax is the most lines of an output that are compared, its last: a failure ends an output.
	comparedMax = 400
	// comparedText bounds the text of a compared line in bytes, so that a page shows all.
	comparedText = 4 << 10
)

// Compare compares the end of the output of a run with another one's.
func (l *Lines) Compare(ctx context.Context, who Caller, id job.ID, q client.CompareQuery) (compared client.ComparedOutputs, err error) {
	if q.With.IsZero() {
		if q.With, err = l.lastSuccess(ctx, who, id); err != nil {
			return compared, err
		}
	}
	var sides [2]client.OutputLines
	for i, ask := range []struct {
		run     job.ID
		attempt int
	}{{id, q.Attempt}, {q.With, 0}} {
		if ask.run.IsZero() {
			break
		}
		if sides[i], err = l.Read(ctx, who, ask.run, client.LinesQuery{Attempt: ask.attempt, Stream: q.Stream, Count: comparedMax}); err != nil {
			return compared, err
		}
		for n := range sides[i].Items {
			shorten(&sides[i].Items[n])
		}
	}
	own, other := sides[0].Items, sides[1].Items
	compared = client.ComparedOutputs{
		Attempt: sides[0].Attempt, With: q.With, WithAttempt: sides[1].Attempt, Items: compare(own, other),
		Cut: sides[0].Total > len(own) || sides[1].Total > len(other),
	}
	for _, item := range compared.Items {
		switch {
		case item.Other == nil:
			compared.Only++
		case item.Line == nil:
			compared.Missing++
		}
	}
	return compared, nil
}

// lastSuccess returns the last run of the same job that succeeded before a run ended, zero for none.
func (l *Lines) lastSuccess(ctx context.Context, who Caller, id job.ID) (job.ID, error) {
	run, err := l.output.runs.Get(ctx, who, id)
	if err != nil {
		return job.ID{}, err
	}
	found, err := l.output.runs.List(ctx, who, client.RunQuery{Job: run.JobUID.String(), Outcomes: []job.Outcome{job.OutcomeSucceeded}, To: run.Ended, PageSize: 1})
	if err != nil || len(found.Items) == 0 {
		return job.ID{}, err
	}
	return found.Items[0].ID, nil
}

// shorten cuts the text of a line that is compared.
func shorten(line *client.OutputLine) {
	if len(line.Text) > comparedText {
		line.Cut = max(line.Cut, len(line.Text))
		line.Text = strings.ToValidUTF8(line.Text[:comparedText], "")
	}
}

// compare lays the lines of two outputs beside each other.
func compare(own, other []client.OutputLine) []client.ComparedLine {
	items := []client.ComparedLine{}
	both := func(until int) {
		for ; until > 0; until-- {
			items = append(items, client.ComparedLine{Line: &own[0], Other: &other[0]})
			own, other = own[1:], other[1:]
		}
	}
	all := len(own)
	for line := range strings.Lines(string(diff.Diff("other", alike(other), "own", alike(own)))) {
		switch {
		case strings.HasPrefix(line, "@@ "): // the lines before it are alike
			var from int
			_, after, _ := strings.Cut(line, " +")
			_, _ = fmt.Sscanf(after, "%d", &from)
			both(from - 1 - (all - len(own)))
		case strings.HasPrefix(line, "-|"):
			items, other = append(items, client.ComparedLine{Other: &other[0]}), other[1:]
		case strings.HasPrefix(line, "+|"):
			items, own = append(items, client.ComparedLine{Line: &own[0]}), own[1:]
		case strings.HasPrefix(line, " |"):
			both(1)
		}
	}
	both(len(own))
	return items
}

// alike returns lines without what differs between two runs that do the same.
func alike(lines []client.OutputLine) []byte {
	var b []byte
	for i := range lines {
		text := strings.TrimRight(lines[i].Text, "\r")
		text = text[strings.LastIndexByte(text, '\r')+1:]
		b = append(b, "|"+lines[i].Stream+" "+reason.Alike(text)+"\n"...)
	}
	return b
}
