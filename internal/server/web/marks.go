package web

import (
	"context"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/server/service"
)

// channelsSubject stands for the channels where a form names what a problem is about.
const channelsSubject = "channels"

// sourcesSubject stands before the owner of the jobs of a repository: names of nodes have no spaces.
const sourcesSubject = "source "

// morning is the hour at which a snooze until the morning ends.
const morning = 9

// subjectOf is what a problem is about, as forms name it.
func subjectOf(a *client.Attention) string {
	switch {
	case a.Kind == client.AttentionAlarms:
		return channelsSubject
	case a.Source != "":
		return sourcesSubject + a.Source
	case a.Job != "":
		return a.Job
	}
	return a.Node
}

// marking reads what a form says about a problem.
func (p *page) marking() client.AttentionRequest {
	about := p.r.Form.Get("about")
	r := client.AttentionRequest{Note: strings.TrimSpace(p.r.PostForm.Get("note"))}
	switch {
	case about == channelsSubject:
		r.Channels = true
	case strings.HasPrefix(about, sourcesSubject):
		r.Source = strings.TrimPrefix(about, sourcesSubject)
	case strings.Contains(about, "/"):
		r.Job = about
	default:
		r.Node = about
	}
	return r
}

// snoozes are the ends that a snooze may have; the last one is for jobs alone.
var snoozes = []string{"1h", "4h", "morning", "cause", "version"}

// snoozeUntil reads until when a problem is put aside.
func (p *page) snoozeUntil(r *client.AttentionRequest) error {
	switch until := p.r.PostForm.Get("until"); until {
	case "version":
		r.NextVersion = true
	case "cause":
		r.AnotherCause = true
	case "morning":
		now := p.now.In(p.zone)
		r.Until = time.Date(now.Year(), now.Month(), now.Day(), morning, 0, 0, 0, p.zone)
		if !r.Until.After(now) {
			r.Until = time.Date(now.Year(), now.Month(), now.Day()+1, morning, 0, 0, 0, p.zone)
		}
	default:
		d, err := time.ParseDuration(until)
		if err != nil || d <= 0 {
			return service.WrongParameter("until", phrase.NotSnooze, phrase.SuchAs.Of("1h"))
		}
		r.Until = p.now.Add(d)
	}
	return nil
}

// markActions are what people can say about a problem: POST /attention/VERB.
func (s *site) markActions() {
	marks := s.Service.Attention
	for verb, do := range map[string]func(context.Context, service.Caller, client.AttentionRequest) ([]client.Attention, error){
		"snooze": marks.Snooze, "wake": marks.Wake, "take": marks.Take, "release": marks.Release, "note": marks.Note,
	} {
		s.page("POST /attention/"+verb, func(p *page) error {
			r := p.marking()
			if verb == "snooze" {
				if err := p.snoozeUntil(&r); err != nil {
					return err
				}
			}
			if _, err := do(p.ctx(), p.who, r); err != nil {
				return err
			}
			s.known.Delete(p.who.Says()) // the list that the next page shows
			return p.done(p.back("/"), "marked_"+verb, "about", p.r.Form.Get("about"))
		})
	}
}

// marked says what people have said about a problem.
func (p *page) marked(n *need, a *client.Attention) {
	n.Kind, n.Subject, n.Note = string(a.Kind), subjectOf(a), clean(a.Note)
	if a.Note != "" {
		n.NoteBy = clean(a.NoteBy)
	}
	if n.Until = snoozes; !n.IsJob {
		n.Until = snoozes[:len(snoozes)-1]
	}
	n.TakenBy, n.IsMine = clean(a.TakenBy), a.TakenBy != "" && a.TakenBy == p.who.Name
	z := a.Snoozed
	switch {
	case z == nil:
	case z.NextVersion:
		n.Snoozed = p.T("overview.snoozed_version", "by", clean(z.By))
	case z.AnotherCause:
		n.Snoozed = p.T("overview.snoozed_cause", "by", clean(z.By))
	default:
		n.Snoozed = p.T("overview.snoozed_until", "by", clean(z.By), "when", p.minute(z.Until).Text)
	}
}

// open returns the problems that are not snoozed: they come first.
func open(list []client.Attention) []client.Attention {
	for i := range list {
		if list[i].Snoozed != nil {
			return list[:i]
		}
	}
	return list
}
