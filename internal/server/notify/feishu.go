package notify

import (
	"context"
	"strconv"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
)

// feishuMax bounds a message, in bytes: Feishu accepts requests of 20 KB.
const feishuMax = 12_000

// feishuBusy are the error codes after which the same message may be accepted later: too many
// messages at once from the tenant or in one chat. Feishu also sends them with the status 400.
var feishuBusy = map[int]time.Duration{11232: 30 * time.Second, 230020: 30 * time.Second}

// feishu sends text to the webhook of a bot, signed if it has a key: the signature is of an empty
// message, with the time and the key as the HMAC key.
func (s *Sender) feishu(ctx context.Context, c *job.Channel, m *notification.Message) error {
	to := c.To.Feishu
	address, err := s.secret(ctx, c, &to.URL)
	if err != nil {
		return err
	}
	key, err := s.secret(ctx, c, to.Secret)
	if err != nil {
		return err
	}
	body := map[string]any{"msg_type": "text", "content": map[string]any{"text": plainText(m, feishuMax)}}
	if key != "" {
		at := strconv.FormatInt(s.config.Now().Unix(), 10)
		body["timestamp"], body["sign"] = at, signed(at+"\n"+key, "")
	}
	return s.post(ctx, request{url: address, body: body, judge: coded("code", feishuBusy)})
}
