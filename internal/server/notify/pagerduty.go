package notify

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
)

const (
	pagerDutyServer     = "https://events.pagerduty.com"
	pagerDutySummaryMax = 1024
)

var pagerDutySeverities = map[notification.Severity]string{notification.Bad: "error", notification.Warning: "warning", notification.Good: "info"}

// pagerDuty triggers or resolves an incident by the Events API 2. All messages of a group have
// one dedup_key.
func (s *Sender) pagerDuty(ctx context.Context, c *job.Channel, m *notification.Message) error {
	to := c.To.PagerDuty
	key, err := s.secret(ctx, c, &to.Key)
	if err != nil {
		return err
	}
	body := map[string]any{"routing_key": key, "event_action": "resolve", "dedup_key": m.Key}
	if !isOver(m) {
		body["event_action"] = "trigger"
		body["client"] = "Belfry"
		source := "belfry" // it must not be empty
		if len(m.Lines) > 0 && m.Lines[0].Job != "" {
			source = m.Lines[0].Namespace + "/" + m.Lines[0].Job
		}
		if len(m.Lines) > 0 {
			source = cmp.Or(m.Lines[0].Node, source)
		}
		body["payload"] = map[string]any{
			"summary": shorten(m.Title, pagerDutySummaryMax), "source": source, "severity": pagerDutySeverities[m.Severity],
			"timestamp": m.Time.UTC().Format(time.RFC3339), "class": "belfry", "custom_details": map[string]any{"events": m.Lines, "more": m.More},
		}
		if link := linkOf(m); link != "" {
			body["client_url"] = link
			body["links"] = []any{map[string]any{"href": link, "text": "Open in Belfry"}}
		}
	}
	return s.post(ctx, request{url: strings.TrimRight(cmp.Or(to.Server, pagerDutyServer), "/") + "/v2/enqueue", body: body})
}

// isOver reports whether a message ends all problems of its group.
func isOver(m *notification.Message) bool { return !m.Open && m.Severity == notification.Good }
