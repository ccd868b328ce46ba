package notify

import (
	"context"
	"strings"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/job"
)

// teamsMax is how many bytes the text of a card has at most: Teams refuses messages of more
// than 28 KB.
const teamsMax = 16 << 10

// teamsColours are the colours of adaptive cards.
var teamsColours = map[notification.Severity]string{notification.Bad: "attention", notification.Warning: "warning", notification.Good: "good"}

// teams delivers an adaptive card to the webhook of a workflow.
func (s *Sender) teams(ctx context.Context, c *job.Channel, m *notification.Message) error {
	address, err := s.secret(ctx, c, &c.To.Teams.URL)
	if err != nil {
		return err
	}
	block := func(text string, more map[string]any) map[string]any {
		b := map[string]any{"type": "TextBlock", "text": markdownEscape.Replace(text), "wrap": true}
		for name, value := range more {
			b[name] = value
		}
		return b
	}
	blocks := []any{block(m.Title, map[string]any{"size": "Medium", "weight": "Bolder", "color": teamsColours[m.Severity]})}
	size := 0
	for i := range m.Lines {
		text := m.Lines[i].Text(m.Zone())
		if details := m.Lines[i].Details(m.Zone()); details != "" {
			text += "\n\n" + details // starts a Markdown paragraph
		}
		output := strings.Join(m.Lines[i].Output, "\n\n")
		if size += len(text) + len(output); size > teamsMax {
			m.More += len(m.Lines) - i
			break
		}
		blocks = append(blocks, block(text, nil))
		if output != "" {
			blocks = append(blocks, block(output, map[string]any{"fontType": "Monospace", "size": "Small"}))
		}
	}
	if m.More > 0 {
		blocks = append(blocks, block(moreText(m.More), nil))
	}
	card := map[string]any{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": blocks}
	if link := linkOf(m); link != "" {
		card["actions"] = []any{map[string]any{"type": "Action.OpenUrl", "title": "Open in Belfry", "url": link}}
	}
	return s.post(ctx, request{url: address, body: map[string]any{
		"type": "message", "attachments": []any{map[string]any{"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil, "content": card}},
	}})
}
