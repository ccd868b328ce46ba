package notification

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Severity is the urgency of a message.
type Severity string

// The severities.
const (
	Bad     Severity = "error"
	Warning Severity = "warning"
	Good    Severity = "ok"
)

// SeverityOf returns how urgent events of a kind are.
func SeverityOf(kind job.Notice) Severity {
	switch kind {
	case job.NoticeLate, job.NoticeLateStart, job.NoticeSlow, job.NoticeUnmet, job.NoticeSkipped, job.NoticeApproval:
		return Warning
	}
	return Bad
}

// Message is a message for a service to deliver.
type Message struct {
	// ID is the same when the message is sent again, so that receivers can drop duplicates.
	ID string `json:"id"`
	// Key is the same for all messages about one group.
	Key     string `json:"key"`
	Channel string `json:"channel"` // namespace/name
	// Open is set if a problem of the group lasts.
	Open     bool      `json:"open"`
	Severity Severity  `json:"severity"`
	Repeated bool      `json:"repeated,omitempty"` // it has no news
	Test     bool      `json:"test,omitempty"`
	Time     time.Time `json:"time"`
	Title    string    `json:"title"`
	Lines    []Line    `json:"events"`
	More     int       `json:"more,omitempty"` // number of unlisted events
	Link     string    `json:"link,omitempty"`
	zone     *time.Location
}

// Line is one problem in a message.
type Line struct {
	Kind      job.Notice `json:"kind"`
	Over      bool       `json:"over"`
	Severity  Severity   `json:"severity"`
	Namespace string     `json:"namespace,omitempty"`
	Job       string     `json:"job,omitempty"`
	Node      string     `json:"node,omitempty"`
	Owner     string     `json:"owner,omitempty"` // of the jobs of a repository
	Run       job.ID     `json:"run,omitzero"`
	Count     int        `json:"count"`
	First     time.Time  `json:"first"`
	Last      time.Time  `json:"last"`
	What      string     `json:"what"`             // such as "shop/backup failed"
	Reason    string     `json:"reason,omitempty"` // such as "exit status 3"
	// ReasonCode and ReasonArgs are the reason for programs, as in the API.
	ReasonCode string          `json:"reason_code,omitempty"`
	ReasonArgs *job.ReasonArgs `json:"reason_args,omitempty"`
	// Outcome is of a run that ended, with a webhook of its own.
	Outcome job.Outcome `json:"outcome,omitempty"`
	Cause   string      `json:"cause,omitempty"` // the failure in the words of the work
	Attempt int         `json:"attempt,omitempty"`
	// Took is the duration of the run, and Lasted of a problem that is over, in seconds.
	Took    float64 `json:"took_seconds,omitempty"`
	Lasted  float64 `json:"lasted_seconds,omitempty"`
	Command string  `json:"command,omitempty"` // the command that shows the output
	// Failing is since when the job fails, and Output the last lines of the attempt's output.
	Failing *Failing `json:"failing,omitempty"`
	Output  []string `json:"output,omitempty"`
	Link    string   `json:"link,omitempty"`
	// UID is the job's uid, and Momentary is set for a problem without an end.
	UID       job.ID `json:"-"`
	Momentary bool   `json:"-"`
}

// Failing is the beginning of the failures of a job.
type Failing struct {
	Since time.Time `json:"since"`
	// Version is the version of the job in the first failure, and Before in the run before, which succeeded.
	Version int64 `json:"version"`
	Before  int64 `json:"version_before,omitempty"`
}

// FailingOf returns since when a job fails, by its last ends, latest first; nil if they do not show it
// or it is not news.
func FailingOf(ended []store.Record) *Failing {
	var first *store.Record
	failures := 0
	for i := range ended {
		r := &ended[i]
		if r.Attempt.Outcome == job.OutcomeSucceeded && first != nil {
			f := &Failing{Since: first.Attempt.Ended, Version: first.Run.Version, Before: r.Run.Version}
			if failures == 1 && f.Version == f.Before {
				return nil
			}
			return f
		}
		if r.Attempt.Outcome == job.OutcomeSucceeded {
			return nil
		}
		if r.Attempt.Outcome.Failed() {
			first, failures = r, failures+1
		}
	}
	return nil
}

// text formats it for the details of a line.
func (f *Failing) text(zone *time.Location) string {
	text := "failing since " + f.Since.In(zone).Format(minuteLayout)
	if f.Version != f.Before {
		text += fmt.Sprintf(" (version %d → %d)", f.Before, f.Version)
	}
	return text
}

// minuteLayout is how messages write a moment.
const minuteLayout = "Jan 2 15:04 MST"

// Text returns the line in words.
func (l *Line) Text(zone *time.Location) string {
	text := l.What
	if l.Count > 1 {
		text += fmt.Sprintf(" (%d times since %s)", l.Count, l.First.In(zone).Format(minuteLayout))
	}
	if l.Lasted > 0 {
		text += " after " + inWords(l.Lasted)
	}
	if why := reason.Beside(l.Reason, l.Cause); why != "" {
		text += ": " + why
	}
	return text
}

// Details returns the node, the duration, since when the job fails and how to see the output; "" for
// none of these.
func (l *Line) Details(zone *time.Location) string {
	if l.Command == "" {
		return ""
	}
	text := fmt.Sprintf("attempt %d", l.Attempt)
	if l.Node != "" {
		text += " on " + l.Node
	}
	if l.Took > 0 {
		text += ", " + inWords(l.Took)
	}
	if l.Failing != nil {
		text += "; " + l.Failing.text(zone)
	}
	return text + "; " + l.Command
}

// inWords formats a duration in seconds: whole ones from 10 s on.
func inWords(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	if d >= 10*time.Second {
		d = d.Round(time.Second)
	}
	return job.Duration(d).InWords()
}

// Zone returns the time zone of the receivers.
func (m *Message) Zone() *time.Location {
	if m.zone == nil {
		return time.UTC
	}
	return m.zone
}

// words describe an event of a job, and its end.
var words = map[job.Notice][2]string{
	job.NoticeFailed:    {"failed", "has recovered"},
	job.NoticeMissed:    {"missed a run", ""},
	job.NoticeLate:      {"is late", "is no longer late"},
	job.NoticeLateStart: {"started late", ""},
	job.NoticeWaiting:   {"waits for a node", "no longer waits for a node"},
	job.NoticeSlow:      {"takes longer than usual", "no longer takes longer than usual"},
	job.NoticeUnmet:     {"does not meet an expectation", ""},
	job.NoticePaused:    {"was paused", "is no longer paused"},
	job.NoticeApproval:  {"waits for an approval", "has its answer"},
	job.NoticeNodeLost:  {"is silent", "is back"},
	job.NoticeDisk:      {"has little disk space left", "has disk space again"},
	job.NoticeHistory:   {"is away", "is back"},
	job.NoticeSource:    {"cannot be applied", "is applied again"},
}

func (is *Item) line(c *job.Channel) Line {
	l := Line{
		Kind: is.Kind, Over: !is.Over.IsZero() && is.Lasting, Severity: SeverityOf(is.Kind), Namespace: is.Namespace, Job: is.Job,
		Node: is.Node, Owner: is.Owner, Run: is.Run, Count: is.Count, First: is.First, Last: is.Time, Reason: is.Text.String(), Cause: is.Cause, UID: is.UID, Momentary: !is.Lasting,
	}
	l.ReasonCode, l.ReasonArgs = is.Text.For()
	if !is.Run.IsZero() && is.Attempt > 0 {
		l.Attempt, l.Command = is.Attempt, "belfry logs "+is.Run.String()
		if !is.Began.IsZero() {
			l.Took = max(0, is.Time.Sub(is.Began).Seconds())
		}
	}
	pair := words[is.Kind]
	switch {
	case is.Kind == job.NoticeFailing:
		pair = [2]string{fmt.Sprintf("failed %d times in a row", is.InARow), "has recovered"}
		l.Count = 1
	case is.Kind == job.NoticeEnded:
		pair[0] = strings.ReplaceAll(string(is.Outcome), "_", " ")
		if l.Outcome = is.Outcome; is.Outcome == job.OutcomeSucceeded {
			l.Severity = Good
		}
	case is.Kind == job.NoticeSkipped:
		pair = [2]string{fmt.Sprintf("was skipped %d times in a row", is.InARow), "is no longer skipped"}
		l.Count = 1
	case is.Kind == job.NoticeMissed && is.Count > 1:
		pair[0] = fmt.Sprintf("missed %d runs", is.Count)
		l.Count = 1
	}
	l.What = is.About() + " " + pair[0]
	if l.Over && is.Told {
		l.What, l.Severity, l.Count, l.Reason = is.About()+" "+pair[1], Good, 1, ""
		l.ReasonCode, l.ReasonArgs, l.Cause, l.Attempt, l.Took, l.Command = "", nil, "", 0, 0, ""
		l.Lasted = max(0, is.Over.Sub(is.First).Seconds())
	} else if l.Over {
		l.What += " and " + pair[1]
	}
	if link := strings.TrimRight(c.Link, "/"); link != "" {
		switch {
		case !is.Run.IsZero():
			l.Link = link + "/runs/" + is.Run.String()
		case is.Job != "":
			l.Link = link + "/jobs/" + is.Namespace + "/" + is.Job
		default:
			l.Link = link + "/"
		}
	}
	return l
}

// MessageOf returns the message about groups whose Trying is set.
func MessageOf(c *job.Channel, groups []*Group, now time.Time) Message {
	m := Message{Channel: c.FullName(), Severity: Good, Time: now, Repeated: true, zone: time.UTC, Link: c.Link}
	if zone, err := c.Location(); err == nil {
		m.zone = zone.Location()
	}
	var ids strings.Builder
	about := map[string]bool{}
	for _, g := range groups {
		fmt.Fprintf(&ids, "%s %d %d;", g.ID, g.Trying, g.Messages)
		m.Key, m.More = g.UID.String()+"-"+g.ID, m.More+g.Left
		repeated := g.Trying <= g.Said
		for _, is := range g.Items {
			m.Open = m.Open || is.Over.IsZero()
			switch {
			case repeated && !is.Over.IsZero():
				continue
			case !repeated && (is.News <= g.Said || is.News > g.Trying):
				continue
			}
			m.Repeated = m.Repeated && repeated
			l := is.line(c)
			m.Severity = worse(m.Severity, l.Severity)
			about[is.About()] = true
			if len(m.Lines) == itemsMax {
				m.More++
				continue
			}
			m.Lines = append(m.Lines, l)
		}
	}
	if len(groups) > 1 {
		m.Key = c.UID.String()
	}
	m.ID = "msg_" + short(ids.String()) + short("2 "+ids.String())
	m.Title = m.title(len(about))
	if m.Repeated {
		m.Title = "Still: " + m.Title
	}
	return m
}

func worse(a, b Severity) Severity {
	rank := map[Severity]int{Good: 0, Warning: 1, Bad: 2}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// title is the first line of a message about a number of events.
func (m *Message) title(about int) string {
	n := len(m.Lines) + m.More
	switch {
	case len(m.Lines) == 0:
		return fmt.Sprintf("%d events", m.More)
	case n == 1 || about == 1 && m.Severity == Good:
		return m.Lines[0].What
	case about == 1:
		l := m.Lines[0]
		return l.What + fmt.Sprintf(" and %d more", n-1)
	case m.Severity == Good:
		return fmt.Sprintf("%d problems are over", n)
	}
	return fmt.Sprintf("%d problems with %d jobs or nodes", n, about)
}

// Body returns the lines of the message as plain text of at most this many bytes, without
// the title if it equals the only line. Output gets the space that the problems leave.
func (m *Message) Body(most int) string {
	const room = 40 // for the number of omitted lines
	texts, spare := make([]string, len(m.Lines)), most-room
	for i := range m.Lines {
		texts[i] = m.Lines[i].Text(m.Zone())
		if details := m.Lines[i].Details(m.Zone()); details != "" {
			texts[i] += "\n" + details
		}
		spare -= len(texts[i]) + len(m.Lines[i].Link) + 2
	}
	var b strings.Builder
	left := m.More
	for i, text := range texts {
		output := m.Lines[i].outputWithin(spare)
		spare -= len(output)
		text += output
		if m.Lines[i].Link != "" {
			text += "\n" + m.Lines[i].Link
		}
		if b.Len()+len(text)+room > most {
			if b.Len() == 0 {
				b.WriteString(cut(text, max(0, most-room)) + "\n")
				left += len(m.Lines) - 1
			} else {
				left += len(m.Lines) - i
			}
			break
		}
		b.WriteString(text + "\n")
	}
	if left > 0 {
		fmt.Fprintf(&b, "… and %d more\n", left)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// outputWithin returns the last lines of the output, indented, that have at most this many bytes.
func (l *Line) outputWithin(most int) (text string) {
	for _, line := range slices.Backward(l.Output) {
		line = "\n" + strings.TrimRight("    "+line, " ")
		if len(line)+len(text) > most {
			break
		}
		text = line + text
	}
	return text
}

// Test returns a message that shows that a channel works.
func Test(c *job.Channel, id string, by string, now time.Time) Message {
	m := Message{
		ID: "msg_" + id, Key: c.UID.String() + "-test-" + id, Channel: c.FullName(), Severity: Warning, Test: true, Time: now, Link: c.Link,
		Title: "Test of the channel " + c.FullName(), zone: time.UTC,
	}
	m.Lines = []Line{{
		Severity: Warning, Count: 1, First: now, Last: now, What: "This is a test", Reason: "sent by " + by,
	}}
	return m
}

// cut returns the beginning of a text that has at most n bytes, in whole letters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const more = "…"
	most = max(0, most-len(more))
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + more
}
