package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// webhook delivers according to Standard Webhooks: https://www.standardwebhooks.com.
func (s *Sender) webhook(ctx context.Context, c *job.Channel, m *notification.Message) error {
	w := c.To.Webhook
	address := w.URL
	if w.URLSecret != nil {
		var err error
		if address, err = s.secret(ctx, c, w.URLSecret); err != nil {
			return err
		}
	}
	var key []byte
	if w.Secret != nil { // else it is the webhook of a run that has none
		secret, err := s.secret(ctx, c, w.Secret)
		if err != nil {
			return err
		}
		if key, err = webhookKey(secret); err != nil {
			return err
		}
	}
	kind := "belfry.notification"
	if m.Test {
		kind = "belfry.test"
	}
	body, err := marshal(map[string]any{"type": kind, "timestamp": m.Time.UTC().Format(time.RFC3339), "data": m})
	if err != nil {
		return refused(phrase.MessageFaulty.Of(phrase.Words(err.Error())))
	}
	at := strconv.FormatInt(s.config.Now().Unix(), 10)
	header := map[string]string{"webhook-id": m.ID, "webhook-timestamp": at}
	if key != nil {
		header["webhook-signature"] = webhookSignature(key, m.ID, at, body)
	}
	return s.post(ctx, request{url: address, body: body, header: header})
}

// webhookKey reads a key in the notation of Standard Webhooks.
func webhookKey(secret string) ([]byte, error) {
	const least, most = 24, 64 // bytes, from the specification
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) < least || len(key) > most {
		return nil, refused(phrase.NotSigningKey.Of(least, most))
	}
	return key, nil
}

func webhookSignature(key []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
