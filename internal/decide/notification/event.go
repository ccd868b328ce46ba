// Package notification decides about messages on problems: which events the rules of a channel
// select, which events share a message, when that is due, and its text. It reads no clock, touches
// no store and sends nothing.
package notification

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Event is an event that a channel may report.
type Event struct {
	Kind      job.Notice        `json:"kind"`
	Namespace string            `json:"namespace,omitempty"`
	Job       string            `json:"job,omitempty"` // name in the namespace
	UID       job.ID            `json:"uid,omitzero"`
	Labels    map[string]string `json:"-"`
	Node      string            `json:"node,omitempty"`
	Owner     string            `json:"owner,omitempty"` // of the jobs of a repository
	Run       job.ID            `json:"run,omitzero"`    // the latest
	Attempt   int               `json:"attempt,omitempty"`
	Step      string            `json:"step,omitempty"` // step of a flow, for an approval
	Time      time.Time         `json:"time"`
	Text      job.Reason        `json:"text,omitzero"`
	// Cause is the failure in the words of the work, and Began when the run started.
	Cause string    `json:"cause,omitempty"`
	Began time.Time `json:"began,omitzero"`
	// Count is how many occurrences it is about, at least 1.
	Count int `json:"count,omitempty"`
	// Outcome is of the end of a run that has a webhook of its own.
	Outcome job.Outcome `json:"outcome,omitempty"`
	// Late is how late the run started.
	Late time.Duration `json:"-"`
	// InARow is how many runs of the job have failed, or were skipped, one after another.
	InARow int `json:"in_a_row,omitempty"`
	// Lasting is set if the event begins a problem whose end is observed as well.
	Lasting bool `json:"lasting,omitempty"`
}

// Key is the same for events about the same problem.
func (e *Event) Key() string {
	switch {
	case e.Kind == job.NoticeSource:
		return string(e.Kind) + " " + e.Owner
	case e.Kind.OfServer():
		return string(e.Kind) + " " + e.Node
	case e.Kind == job.NoticeApproval: // each is a separate request
		return string(e.Kind) + " " + e.Run.String() + "/" + e.Step
	}
	return string(e.Kind) + " " + e.Namespace + "/" + e.Job
}

// About describes the subject of the event.
func (e *Event) About() string {
	switch {
	case e.Kind == job.NoticeHistory:
		return "the history store"
	case e.Kind == job.NoticeSource:
		return "the repository of " + e.Owner
	case e.Kind.OfServer():
		return "node " + e.Node
	}
	return e.Namespace + "/" + e.Job
}

// Wants reports whether a channel, with its defaults filled in, reports an event at a moment.
func Wants(c *job.Channel, e *Event, now time.Time) bool {
	return !c.Paused && slices.ContainsFunc(c.Rules, func(r job.ChannelRule) bool { return selects(&r, e.Kind, e, now) })
}

// wantsEnd reports whether a channel reports the end of a problem.
func wantsEnd(c *job.Channel, e *Event, now time.Time) bool {
	return keepsOpen(c) || slices.ContainsFunc(c.Rules, func(r job.ChannelRule) bool { return selects(&r, job.NoticeRecovered, e, now) })
}

// keepsOpen reports whether the service keeps a problem open until it is resolved there.
func keepsOpen(c *job.Channel) bool {
	return c.To.PagerDuty != nil || c.To.Opsgenie != nil || c.To.Alertmanager != nil
}

// apart reports whether groups of a channel never share a message: programs that receive messages
// use the group's key, except Alertmanager, which takes lists.
func apart(c *job.Channel) bool {
	return keepsOpen(c) && c.To.Alertmanager == nil || c.To.Webhook != nil
}

func selects(r *job.ChannelRule, kind job.Notice, e *Event, now time.Time) bool {
	if !slices.Contains(r.Events, kind) {
		return false
	}
	enough := true
	switch kind {
	case job.NoticeFailing, job.NoticeSkipped:
		enough = e.InARow >= r.InARow
	case job.NoticeLateStart:
		enough = e.Late >= time.Duration(r.For)
	case job.NoticeLate, job.NoticeWaiting, job.NoticeSlow, job.NoticeApproval, job.NoticeNodeLost, job.NoticeDisk, job.NoticeSource:
		enough = now.Sub(e.Time) >= time.Duration(r.For)
	}
	if !enough {
		return false
	}
	if e.Kind.OfServer() {
		return true
	}
	if !slices.Contains(r.Namespaces, "*") && !slices.Contains(r.Namespaces, e.Namespace) {
		return false
	}
	if len(r.Jobs) > 0 && !slices.ContainsFunc(r.Jobs, func(glob string) bool { return matches(glob, e.Job) }) {
		return false
	}
	for key, want := range r.Labels {
		if has, ok := e.Labels[key]; !ok || has != want {
			return false
		}
	}
	return true
}

// matches reports whether a name matches a pattern in which * stands for any letters.
func matches(glob, name string) bool {
	first, rest, found := strings.Cut(glob, "*")
	if !found {
		return glob == name
	}
	name, ok := strings.CutPrefix(name, first)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	last := parts[len(parts)-1]
	for _, part := range parts[:len(parts)-1] {
		_, after, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = after
	}
	return strings.HasSuffix(name, last)
}

// groupOf returns the subject of the group of an event, the same text for all events of the
// group.
func groupOf(c *job.Channel, e *Event) string {
	switch by := cmp.Or(c.Group.By, job.GroupByJob); {
	case by == job.GroupByChannel:
		return "channel " + c.FullName()
	case e.Kind.OfServer():
		return e.About()
	case by == job.GroupByNamespace:
		return "namespace " + e.Namespace
	case by == job.GroupByRun && !e.Run.IsZero():
		return e.About() + " run " + e.Run.String()
	}
	return e.About()
}

// GroupID returns the id of the group of an event.
func GroupID(c *job.Channel, e *Event) string { return short(c.UID.String() + " " + groupOf(c, e)) }

// short returns an id of 16 letters for a longer text.
func short(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // a hash never fails
	return fmt.Sprintf("%016x", h.Sum64())
}

// mark identifies an event, so that it is counted once.
func (e *Event) mark() string {
	return short(string(e.Kind) + " " + e.Run.String() + " " + strconv.Itoa(e.Attempt) + e.Step)
}
