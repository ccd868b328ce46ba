package client

import (
	"context"
	"net/http"
	"time"
)

// BadgeOf says what a badge shows: a job, or the jobs with a label.
type BadgeOf struct {
	Job       string `json:"job,omitempty" maxLength:"255" doc:"The job that it shows, namespace/name. Either this or a label."`
	Label     string `json:"label,omitempty" maxLength:"512" doc:"The label, key=value, of the jobs that it shows."`
	Namespace string `json:"namespace,omitempty" maxLength:"63" doc:"The namespace of the jobs with the label. Default: all."`
}

// Badge is a link that shows how jobs are to everyone who has it, and nothing else.
type Badge struct {
	BadgeOf
	Token string `json:"token" doc:"The token behind the link. Revoking it ends the link."`
	SVG   string `json:"svg,omitempty" doc:"The path of the picture, which only this answer has."`
	JSON  string `json:"json,omitempty" doc:"The path of the same as JSON, in the form that shields.io reads."`

	Created time.Time `json:"created,omitzero" doc:"When the link was made."`
	By      string    `json:"by,omitempty" doc:"Who made it."`
}

// BadgeState is what a badge shows, in the form of an endpoint of shields.io.
type BadgeState struct {
	SchemaVersion int    `json:"schemaVersion" doc:"1."`
	Label         string `json:"label" doc:"The job or the label."`
	Message       string `json:"message" doc:"How it is: passing, failing, paused or never ran."`
	Color         string `json:"color" doc:"The colour of the message."`
}

// Badges returns the badges of jobs that the caller may change.
func (c *Client) Badges(ctx context.Context) (Page[Badge], error) {
	var page Page[Badge]
	return page, c.do(ctx, call{method: http.MethodGet, path: "/badges", answer: &page})
}

// CreateBadge creates the badge of a job or label, in place of the one before.
func (c *Client) CreateBadge(ctx context.Context, of BadgeOf) (Badge, error) {
	var badge Badge
	return badge, c.do(ctx, call{method: http.MethodPost, path: "/badges", body: of, answer: &badge})
}

// RevokeBadge ends the link of a badge.
func (c *Client) RevokeBadge(ctx context.Context, of BadgeOf) (Badge, error) {
	var ended Badge
	return ended, c.do(ctx, call{method: http.MethodPost, path: "/badges:revoke", body: of, answer: &ended})
}
