package notify

import (
	"context"
	"encoding/base64"
	"maps"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
)

const (
	// alertFor is how long Alertmanager believes an alert without further word: longer than any repetition. Its
	// end is sent in any case.
	alertFor = 31 * 24 * time.Hour
	// momentFor is how long a momentary problem fires: longer than the waits of a default route,
	// group_wait and group_interval.
	momentFor = 10 * time.Minute
	// alertTextMax bounds an annotation.
	alertTextMax = 16 << 10
)

var alertSeverities = map[notification.Severity]string{notification.Bad: "critical", notification.Warning: "warning"}

// postableAlert is an alert in the form of Alertmanager's API v2.
type postableAlert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
	Generator   string            `json:"generatorURL,omitempty"`
}

// alertmanager sends the problems of a message to all instances of a cluster, which share no alerts. It
// is delivered once one instance has accepted it.
func (s *Sender) alertmanager(ctx context.Context, c *job.Channel, m *notification.Message) error {
	to := c.To.Alertmanager
	header := map[string]string{}
	switch {
	case to.Token != nil:
		token, err := s.secret(ctx, c, to.Token)
		if err != nil {
			return err
		}
		header["Authorization"] = "Bearer " + token
	case to.Password != nil:
		password, err := s.secret(ctx, c, to.Password)
		if err != nil {
			return err
		}
		header["Authorization"] = "Basic " + base64.StdEncoding.EncodeToString([]byte(to.Username+":"+password))
	}
	alerts := make([]postableAlert, len(m.Lines))
	for i := range m.Lines {
		alerts[i] = alertOf(to.Labels, m, &m.Lines[i])
	}
	var failed error
	delivered := false
	for _, address := range to.URLs {
		if err := s.post(ctx, request{url: strings.TrimRight(address, "/") + "/api/v2/alerts", body: alerts, header: header}); err != nil {
			failed = err
		} else {
			delivered = true
		}
	}
	if delivered {
		return nil
	}
	return failed
}

// alertOf returns the alert of a problem. Its labels are the same from the first message to the last.
func alertOf(labels map[string]string, m *notification.Message, l *notification.Line) postableAlert {
	a := postableAlert{Labels: map[string]string{}, Annotations: map[string]string{}, StartsAt: l.First.UTC(), EndsAt: m.Time.Add(alertFor).UTC(), Generator: l.Link}
	maps.Copy(a.Labels, labels)
	kind := l.Kind
	if m.Test {
		kind = "test"
	}
	a.Labels["alertname"], a.Labels["channel"], a.Labels["severity"] = "Belfry"+camelCase(string(kind)), m.Channel, alertSeverities[notification.SeverityOf(l.Kind)]
	if m.Test {
		a.Labels["severity"] = alertSeverities[l.Severity]
	}
	of := map[string]string{"namespace": l.Namespace, "job": l.Job}
	if kind.OfServer() {
		of["node"], of["owner"] = l.Node, l.Owner
	} else if kind == job.NoticeApproval {
		of["run"] = l.Run.String()
	}
	for name, value := range of {
		if value != "" { // an empty label is no label
			a.Labels[name] = value
		}
	}
	switch {
	case l.Severity == notification.Good:
		a.EndsAt = m.Time.UTC()
	case l.Over || l.Momentary || m.Test:
		a.EndsAt = m.Time.Add(momentFor).UTC()
	}
	if a.EndsAt.Before(a.StartsAt) {
		a.StartsAt = a.EndsAt
	}
	one := notification.Message{Lines: []notification.Line{*l}}
	one.Lines[0].Link = ""
	a.Annotations["summary"], a.Annotations["description"] = l.What, one.Body(alertTextMax)
	if l.Command != "" {
		a.Annotations["run"], a.Annotations["command"] = l.Run.String(), l.Command
	}
	return a
}

// camelCase writes words that are joined by underscores as names of alerts are.
func camelCase(text string) (name string) {
	for word := range strings.SplitSeq(text, "_") {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}
