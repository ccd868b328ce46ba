package web

import (
	"strings"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// comparison is an output beside the output of another run.
type comparison struct {
	Address   string // the other run
	At        When
	Node      string
	Version   int64
	Alone     string // the address of the output alone
	Missing   bool   // there is no other run
	Cut       bool
	Only, Not int // lines of this output alone, and of the other alone
	Parts     []comparedPart
}

// comparedPart is a stretch of lines, which is folded where both outputs have them.
type comparedPart struct {
	Folded bool
	Rows   []outputLine
}

const (
	// compareSuccess in an address is the last run that succeeded before the one of the page.
	compareSuccess = "success"
	// comparedAround is how many lines of both stay beside those that differ.
	comparedAround = 3
)

// besideOf lays the output of a run beside another one's, as the address says, or says where that is shown.
func (s *site) besideOf(p *page, r *client.Run, runs []client.Run, at int, v *outputCard) error {
	if v.Attempt == 0 {
		return nil
	}
	asked := p.query("compare")
	if asked == "" {
		switch {
		case r.State == job.StateDone && r.Outcome.Alarms():
			v.Beside = p.with("compare", compareSuccess) + "#output"
		case at >= 0 && at+1 < len(runs) && lastAttempt(&runs[at+1]) > 0:
			v.Beside = p.with("compare", runs[at+1].ID.String()) + "#output"
		}
		return nil
	}
	v.Compared = &comparison{Alone: p.with("compare", "") + "#output"}
	q := client.CompareQuery{Attempt: v.Attempt, Stream: v.Stream}
	if asked != compareSuccess {
		var err error
		if q.With, err = job.ParseID(asked); err != nil {
			return &service.Error{Type: client.TypeNotFound, Detail: job.Text(p.T("run.no_id", "id", clean(asked)))}
		}
	}
	compared, err := s.Service.Lines.Compare(p.ctx(), p.who, r.ID, q)
	if err != nil {
		return err
	}
	c := v.Compared
	if c.Missing = compared.With.IsZero(); c.Missing {
		return nil
	}
	other, err := s.Service.Runs.Get(p.ctx(), p.who, compared.With)
	if err != nil {
		return err
	}
	c.Address, c.At, c.Node, c.Version = "/runs/"+other.ID.String(), p.minute(other.Scheduled), other.Node, other.Version
	c.Cut, c.Only, c.Not, c.Parts = compared.Cut, compared.Only, compared.Missing, p.comparedParts(compared.Items)
	return nil
}

// comparedParts folds the lines that both outputs have, but for some around those that differ.
func (p *page) comparedParts(items []client.ComparedLine) (parts []comparedPart) {
	var own, others ansi
	rows := make([]outputLine, len(items))
	near := make([]bool, len(items)) // to a line that differs
	for i, item := range items {
		row := &rows[i]
		switch {
		case item.Other == nil:
			*row = p.outputLine(item.Line, &own)
			row.Class, row.Mark = "add", "+ "
		case item.Line == nil:
			*row = p.outputLine(item.Other, &others)
			row.Class, row.Mark = "del", "− "
		default:
			p.outputLine(item.Other, &others)
			*row = p.outputLine(item.Line, &own)
			row.Mark = "  "
			continue
		}
		for n := max(0, i-comparedAround); n <= min(i+comparedAround, len(items)-1); n++ {
			near[n] = true
		}
	}
	for i := range rows {
		if folded := !near[i]; i == 0 || folded != parts[len(parts)-1].Folded {
			parts = append(parts, comparedPart{Folded: folded})
		}
		last := &parts[len(parts)-1]
		last.Rows = append(last.Rows, rows[i])
	}
	return parts
}

// outputLine shows a line of output.
func (p *page) outputLine(line *client.OutputLine, colours *ansi) outputLine {
	text := strings.TrimRight(line.Text, "\r")
	if cut := len(text) > lineMax; cut || line.Cut > 0 {
		text = strings.ToValidUTF8(text[:min(len(text), lineMax)], "")
		text += "…"
	}
	shown := outputLine{Number: line.Line, Error: line.Stream == "stderr", Parts: colours.parts(text)}
	if !line.Time.IsZero() {
		shown.At = line.Time.In(p.zone).Format("15:04:05")
	}
	return shown
}
