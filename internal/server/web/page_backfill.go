package web

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
)

// backfillView shows what a backfill of a job would run, and how far its backfills are.
type backfillView struct {
	*jobHead
	From, To string
	Allow    bool // runs may overlap
	IsPooled bool // a backfill waits for the pool
	Preview  bool
	Times    []When
	Refused  []editProblem
	Counts   []fact // of the latest runs of backfills, by state
	Rows     []runRow
	More     bool // there are more
	Left     int  // that have not ended
}

// backfillPage previews the range of its address, which can be loaded again and sent to another person.
func (s *site) backfillPage(p *page) error {
	h, err := s.jobHeadOf(p, "backfill")
	if err != nil {
		return err
	}
	v := backfillView{jobHead: h, IsPooled: h.job.Policy.ConcurrencyKey != "", Allow: p.query("overlap") == string(job.OverlapAllow)}
	v.From, v.To = p.now.AddDate(0, 0, -1).In(p.zone).Format(localTime), p.now.In(p.zone).Format(localTime)
	if v.Preview = p.query("from") != "" && h.IsTimed && h.CanRun; v.Preview {
		v.From, v.To = p.query("from"), p.query("to")
		request, err := p.backfillOf(v.From, v.To, p.query("overlap"))
		if err != nil {
			return err
		}
		request.DryRun = true
		would, err := s.Service.Runs.Backfill(p.ctx(), p.who, p.namedJob(), request, "")
		if v.Refused, err = p.refusedAs(err, client.TypeInvalid, client.TypeTooMany, client.TypeConflict); err != nil {
			return err
		}
		for _, item := range would.Items {
			v.Times = append(v.Times, p.at(item.Scheduled))
		}
	}
	list, err := s.Service.Runs.List(p.ctx(), p.who, client.RunQuery{Job: h.Full, Kinds: []job.RunKind{job.RunBackfill}, PageSize: runsPage})
	if err != nil {
		return err
	}
	v.More = list.NextPageToken != ""
	p.progress(&v, list.Items)
	h.Events = "kind=run&" + h.Events
	return p.show("backfill", v)
}

// refusedAs says why the service refused something, in one of some ways; other errors are returned.
func (p *page) refusedAs(err error, ways ...client.ProblemType) ([]editProblem, error) {
	if err == nil {
		return nil, nil
	}
	if e := service.ErrorOf(err); slices.Contains(ways, e.Type) {
		return p.refusals(e), nil
	}
	return nil, err
}

// progress counts runs by what became of them, in the order of the list.
func (p *page) progress(v *backfillView, runs []client.Run) {
	counts := map[string]int{}
	for i := range runs {
		r := &runs[i]
		v.Rows = append(v.Rows, p.runRow(r))
		state := p.runState(r).Text
		if counts[state]++; counts[state] == 1 {
			v.Counts = append(v.Counts, fact{Name: state})
		}
		if r.State != job.StateDone {
			v.Left++
		}
	}
	for i := range v.Counts {
		v.Counts[i].Value = number(int64(counts[v.Counts[i].Name]))
	}
}

// backfillOf reads a range, in the zone of the page.
func (p *page) backfillOf(from, to, overlap string) (request client.BackfillRequest, err error) {
	request.Overlap = job.Overlap(overlap)
	for _, bound := range []struct {
		name, text string
		into       *time.Time
	}{{"from", from, &request.From}, {"to", to, &request.To}} {
		if *bound.into, err = time.ParseInLocation(localTime, bound.text, p.zone); err != nil {
			return request, service.WrongParameter(bound.name, phrase.NotDateTime, phrase.SuchAs.Of("2026-12-24T18:00"))
		}
	}
	return request, nil
}

// backfill makes the runs that the page has shown.
func (s *site) backfill(p *page) error {
	form := p.r.PostForm
	request, err := p.backfillOf(form.Get("from"), form.Get("to"), form.Get("overlap"))
	if err != nil {
		return err
	}
	result, err := s.Service.Runs.Backfill(p.ctx(), p.who, p.namedJob(), request, p.once())
	if err != nil {
		return err
	}
	return p.done("/jobs/"+p.namedJob().String()+"/backfill?n="+strconv.Itoa(result.Made), "backfilled")
}

// cancelBackfill ends the runs of backfills that have not ended.
func (s *site) cancelBackfill(p *page) error {
	if _, err := s.Service.Runs.CancelBackfill(p.ctx(), p.who, p.namedJob(), strings.TrimSpace(p.r.PostForm.Get("reason"))); err != nil {
		return err
	}
	return p.done("/jobs/"+p.namedJob().String()+"/backfill", "cancelled")
}
