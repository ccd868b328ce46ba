package service

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/store"
)

const (
	// LossNotes is the prefix of the notes about steps that the store has lost, before the name of the node
	// that noticed it.
	LossNotes = "lost/"
	// lossesKept bounds the moments in a note, and lossNodesMax the notes that are read.
	lossesKept   = 16
	lossNodesMax = 100
	// lossBefore is how long before it is noticed a loss may have begun: an isolated master acknowledges
	// steps until its nodes find the next one.
	lossBefore = time.Minute
)

// Losses are the acknowledged steps that a store has lost, as a node has noticed it.
type Losses struct {
	Steps int64
	At    []time.Time // the latest, in whole seconds
}

// ParseLosses reads a note.
func ParseLosses(note store.Note) (l Losses, err error) {
	for i, word := range strings.Fields(string(note.Text)) {
		n, err := strconv.ParseInt(word, 10, 64)
		switch {
		case err != nil:
			return l, fmt.Errorf("note %s: %w", note.Name, err)
		case i == 0:
			l.Steps = n
		default:
			l.At = append(l.At, time.Unix(n, 0))
		}
	}
	return l, nil
}

// Add returns the text of the note after another loss.
func (l Losses) Add(steps int64, at time.Time) []byte {
	text := strconv.AppendInt(nil, l.Steps+steps, 10)
	all := append(l.At, at)
	for _, at := range all[max(0, len(all)-lossesKept):] {
		text = strconv.AppendInt(append(text, ' '), at.Unix(), 10)
	}
	return text
}

// markLoss marks a run that was under way when the store lost steps.
func (s *Runs) markLoss(ctx context.Context, run *client.Run) error {
	if !s.mayLose {
		return nil
	}
	notes, err := s.store.Notes(ctx, LossNotes, "", lossNodesMax)
	if err != nil {
		return err
	}
	var last time.Time
	for _, n := range notes {
		l, err := ParseLosses(n)
		if err != nil {
			return err
		}
		for _, at := range l.At {
			if !run.Due.After(at) && (run.Ended.IsZero() || run.Ended.After(at.Add(-lossBefore))) && at.After(last) {
				last = at
			}
		}
	}
	if !last.IsZero() {
		why := reason.LossNear.Of(last)
		run.StoreLoss = why.String()
		run.StoreLossCode, run.StoreLossArgs = why.For()
	}
	return nil
}
