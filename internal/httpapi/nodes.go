package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/store"
)

// nodeStore is what the routes about nodes want.
type nodeStore interface {
	Sessions(ctx context.Context) ([]store.Session, error)
	Now(ctx context.Context) (time.Time, error)
}

func (a *api) nodeRoutes() {
	register(a, http.MethodGet, "/nodes", "list-nodes", "List nodes by name", a.listNodes)
}

type listNodesOutput struct {
	Body client.Page[client.Node]
}

func (a *api) listNodes(ctx context.Context, _ *struct{}) (*listNodesOutput, error) {
	sessions, err := a.Store.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	now, err := a.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	out := &listNodesOutput{Body: client.Page[client.Node]{Items: []client.Node{}}}
	for i := range sessions {
		out.Body.Items = append(out.Body.Items, nodeOf(&sessions[i], now))
	}
	slices.SortFunc(out.Body.Items, func(x, y client.Node) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), slices.Compare(x.Session[:], y.Session[:]))
	})
	return out, nil
}

// nodeOf is a node as the API shows it.
func nodeOf(s *store.Session, now time.Time) client.Node {
	n := client.Node{
		Name: s.Node, Session: s.ID, State: string(s.State(now)), Roles: s.Roles, Labels: s.Labels, Handlers: s.Handlers,
		Capacity: s.Capacity, Running: s.Load.Running, Ready: s.Load.Ready,
		Version: s.Version, Zones: s.Zones, Address: s.Address, Joined: s.Joined, Renewed: s.Renewed,
	}
	if n.Roles == nil {
		n.Roles = []string{}
	}
	return n
}
