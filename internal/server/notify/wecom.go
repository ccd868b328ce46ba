package notify

import (
	"context"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
)

// weComMax is how many bytes a text has at most.
const weComMax = 2048

// weComBusy are the error numbers after which the same message may be accepted later: more than 20
// messages in a minute, and a busy system.
var weComBusy = map[int]time.Duration{45009: time.Minute, -1: 30 * time.Second}

// weCom delivers text to the webhook of a group robot.
func (s *Sender) weCom(ctx context.Context, c *job.Channel, m *notification.Message) error {
	address, err := s.secret(ctx, c, &c.To.WeCom.URL)
	if err != nil {
		return err
	}
	return s.post(ctx, request{url: address, judge: coded("errcode", weComBusy), body: map[string]any{
		"msgtype": "text", "text": map[string]any{"content": plainText(m, weComMax)},
	}})
}
