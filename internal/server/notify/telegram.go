package notify

import (
	"cmp"
	"context"
	"strings"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
)

const (
	telegramServer = "https://api.telegram.org"
	telegramMax    = 4096 // characters of a message
)

// telegram delivers plain text by sendMessage.
func (s *Sender) telegram(ctx context.Context, c *job.Channel, m *notification.Message) error {
	to := c.To.Telegram
	token, err := s.secret(ctx, c, &to.Token)
	if err != nil {
		return err
	}
	return s.post(ctx, request{
		url: strings.TrimRight(cmp.Or(to.Server, telegramServer), "/") + "/bot" + token + "/sendMessage",
		body: map[string]any{
			"chat_id": to.Chat, "text": plainText(m, telegramMax), "link_preview_options": map[string]any{"is_disabled": true},
		},
	})
}
