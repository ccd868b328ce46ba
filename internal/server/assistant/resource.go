package assistant

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// scheme is that of the addresses of resources.
const scheme = "belfry"

// addResources adds the documents of jobs and the runs, in the form of answers.
func (a *assistant) addResources() {
	a.resource("job", scheme+"://jobs/{namespace}/{name}", "The definition and the state of a job.", func(ctx context.Context, path []string) (any, error) {
		if len(path) != 2 {
			return nil, fmt.Errorf("a job is %s://jobs/NAMESPACE/NAME", scheme)
		}
		return a.Client.Job(ctx, path[0], path[1], false)
	})
	a.resource("run", scheme+"://runs/{id}", "A run with its attempts.", func(ctx context.Context, path []string) (any, error) {
		id, err := job.ParseID(strings.Join(path, "/"))
		if err != nil {
			return nil, err
		}
		return a.Client.Run(ctx, id)
	})
}

func (a *assistant) resource(name, template, does string, read func(ctx context.Context, path []string) (any, error)) {
	a.server.AddResourceTemplate(&mcp.ResourceTemplate{Name: name, URITemplate: template, Description: does, MIMEType: "text/plain"},
		func(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			at, err := url.Parse(r.Params.URI)
			if err != nil {
				return nil, mcp.ResourceNotFoundError(r.Params.URI)
			}
			value, err := read(ctx, strings.Split(strings.TrimPrefix(at.Path, "/"), "/"))
			if client.IsType(err, client.TypeNotFound) {
				return nil, mcp.ResourceNotFoundError(r.Params.URI)
			}
			answer := result("", value, part{})
			if err != nil {
				answer = refusal(err)
			}
			text := answer.Content[0].(*mcp.TextContent).Text
			if answer.IsError {
				return nil, errors.New(text)
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: "text/plain", Text: text}}}, nil
		})
}
