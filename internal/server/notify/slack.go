package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

const (
	slackServer = "https://slack.com"
	// slackTextMax is the limit of a block of text, in characters.
	slackTextMax = 3000
	// slackTitleMax is the limit of a header.
	slackTitleMax = 150
)

// slackEscape escapes what Slack would read as a mention or link.
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// marks show the urgency of a message without colours.
var marks = map[notification.Severity]string{notification.Bad: "🔴", notification.Warning: "🟡", notification.Good: "🟢"}

// slack delivers by an incoming webhook or by chat.postMessage.
func (s *Sender) slack(ctx context.Context, c *job.Channel, m *notification.Message) error {
	to := c.To.Slack
	body := map[string]any{
		"text": marks[m.Severity] + " " + slackEscape.Replace(m.Title),
		"blocks": []any{
			map[string]any{"type": "header", "text": map[string]any{"type": "plain_text", "text": shorten(marks[m.Severity]+" "+m.Title, slackTitleMax)}},
			map[string]any{"type": "section", "text": map[string]any{"type": "mrkdwn", "text": shorten(slackEscape.Replace(m.Body(slackTextMax/2)), slackTextMax), "verbatim": true}},
		},
		"unfurl_links": false,
	}
	if to.Token == nil {
		address, err := s.secret(ctx, c, to.URL)
		if err != nil {
			return err
		}
		return s.post(ctx, request{url: address, body: body})
	}
	token, err := s.secret(ctx, c, to.Token)
	if err != nil {
		return err
	}
	body["channel"] = to.Channel
	return s.post(ctx, request{url: cmp.Or(to.Server, slackServer) + "/api/chat.postMessage", body: body, header: map[string]string{"Authorization": "Bearer " + token}, judge: slackAnswer})
}

// slackBusy are the errors after which the same message may be accepted later.
var slackBusy = map[string]bool{"ratelimited": true, "rate_limited": true, "internal_error": true, "fatal_error": true, "service_unavailable": true, "request_timeout": true}

func slackAnswer(body []byte) error {
	var answer struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return &notification.Failure{Err: statusError(200, body), Unsure: true}
	}
	if answer.OK {
		return nil
	}
	f := refused(phrase.SlackSays.Of(phrase.Words(answer.Error)))
	if slackBusy[answer.Error] {
		f.Refused, f.After = false, 30*time.Second
	}
	return f
}

// shorten cuts a text to a number of letters.
func shorten(text string, most int) string {
	letters := []rune(text)
	if len(letters) <= most {
		return text
	}
	return string(letters[:most-1]) + "…"
}
