package notify

import (
	"context"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
)

const (
	discordTitleMax = 256  // characters in the title of an embed
	discordTextMax  = 4096 // characters in its description
)

var discordColours = map[notification.Severity]int{notification.Bad: 0xb42318, notification.Warning: 0xd29922, notification.Good: 0x146c43}

// discord delivers an embed to a webhook. Nothing in it mentions anyone.
func (s *Sender) discord(ctx context.Context, c *job.Channel, m *notification.Message) error {
	address, err := s.secret(ctx, c, &c.To.Discord.URL)
	if err != nil {
		return err
	}
	embed := map[string]any{
		"title": shorten(markdownEscape.Replace(m.Title), discordTitleMax), "description": shorten(markdownEscape.Replace(m.Body(discordTextMax/2)), discordTextMax), "color": discordColours[m.Severity],
		"timestamp": m.Time.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	if link := linkOf(m); link != "" {
		embed["url"] = link
	}
	return s.post(ctx, request{url: address, body: map[string]any{
		"embeds": []any{embed}, "allowed_mentions": map[string]any{"parse": []string{}},
	}})
}
