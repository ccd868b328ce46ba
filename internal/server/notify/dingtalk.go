package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// dingTalkMax bounds a message, in bytes: DingTalk accepts 20,000.
const dingTalkMax = 16_000

// dingTalkRest is how long DingTalk blocks a robot after 21 messages in a minute.
const dingTalkRest = 10 * time.Minute

// dingTalkBusy are the error numbers after which the same message may be accepted later. A robot
// that is too fast gets 410100, on some servers 130101.
var dingTalkBusy = map[int]time.Duration{410100: dingTalkRest, 130101: dingTalkRest, -1: 30 * time.Second}

// dingTalk sends text to the webhook of a robot, signed if there is a key.
func (s *Sender) dingTalk(ctx context.Context, c *job.Channel, m *notification.Message) error {
	to := c.To.DingTalk
	address, err := s.secret(ctx, c, &to.URL)
	if err != nil {
		return err
	}
	key, err := s.secret(ctx, c, to.Secret)
	if err != nil {
		return err
	}
	if key != "" {
		u, err := url.Parse(address)
		if err != nil {
			return refused(phrase.NotWebServer)
		}
		at := strconv.FormatInt(s.config.Now().UnixMilli(), 10)
		query := u.Query()
		query.Set("timestamp", at)
		query.Set("sign", signed(key, at+"\n"+key))
		u.RawQuery = query.Encode()
		address = u.String()
	}
	return s.post(ctx, request{url: address, judge: coded("errcode", dingTalkBusy), body: map[string]any{
		"msgtype": "text", "text": map[string]any{"content": plainText(m, dingTalkMax)},
	}})
}

// signed returns the HMAC-SHA256 of a text in base64.
func signed(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
