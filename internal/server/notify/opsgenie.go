package notify

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
)

const (
	opsgenieServer     = "https://api.opsgenie.com"
	opsgenieMessageMax = 130   // letters
	opsgenieTextMax    = 15000 // characters in the description
)

var opsgeniePriorities = map[notification.Severity]string{notification.Bad: "P2", notification.Warning: "P3", notification.Good: "P5"}

// opsgenie creates or closes an alert. All messages of a group have one alias.
func (s *Sender) opsgenie(ctx context.Context, c *job.Channel, m *notification.Message) error {
	to := c.To.Opsgenie
	key, err := s.secret(ctx, c, &to.Key)
	if err != nil {
		return err
	}
	r := request{
		url:    strings.TrimRight(cmp.Or(to.Server, opsgenieServer), "/") + "/v2/alerts",
		header: map[string]string{"Authorization": "GenieKey " + key},
	}
	if isOver(m) {
		r.url += "/" + url.PathEscape(m.Key) + "/close?identifierType=alias"
		r.body = map[string]any{"source": "belfry", "note": m.Title}
		return s.post(ctx, r)
	}
	details := map[string]string{"channel": m.Channel, "message": m.ID}
	if link := linkOf(m); link != "" {
		details["link"] = link
	}
	r.body = map[string]any{
		"message": shorten(m.Title, opsgenieMessageMax), "alias": m.Key, "description": m.Body(opsgenieTextMax),
		"source": "belfry", "tags": []string{"belfry"}, "priority": opsgeniePriorities[m.Severity], "details": details,
	}
	return s.post(ctx, r)
}
