package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// nodeStore is what the routes about nodes want.
type nodeStore interface {
	Sessions(ctx context.Context) ([]store.Session, error)
	Drain(ctx context.Context, d store.DrainNode) error
	Mine(ctx context.Context, session job.ID) ([]store.Run, error)
	Now(ctx context.Context) (time.Time, error)
}

func (a *api) nodeRoutes() {
	register(a, http.MethodGet, "/nodes", "list-nodes", "List nodes by name", a.listNodes)
	register(a, http.MethodPost, "/nodes/{id}/drain", "drain-node", "Let a node take no more runs", a.drainNode)
	register(a, http.MethodPost, "/nodes/{id}/undrain", "undrain-node", "Let a node take runs again", a.undrainNode)
}

type listNodesOutput struct {
	Body client.Page[client.Node]
}

func (a *api) listNodes(ctx context.Context, _ *struct{}) (*listNodesOutput, error) {
	list, err := a.nodes(ctx)
	return &listNodesOutput{Body: client.Page[client.Node]{Items: list}}, err
}

// nodes returns all nodes by name and session.
func (a *api) nodes(ctx context.Context) ([]client.Node, error) {
	sessions, err := a.Store.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	now, err := a.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	list := []client.Node{}
	for i := range sessions {
		if replaced(&sessions[i], sessions) {
			continue
		}
		n := nodeOf(&sessions[i], now)
		if sessions[i].Drain != nil {
			// What a node says of itself is some seconds old, and whoever drains
			// one waits for its end, whether the node is heard of or not.
			mine, err := a.Store.Mine(ctx, n.Session)
			if err != nil {
				return nil, err
			}
			n.Running = len(mine)
		}
		list = append(list, n)
	}
	slices.SortFunc(list, func(x, y client.Node) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), slices.Compare(x.Session[:], y.Session[:]))
	})
	return list, nil
}

// replaced tells whether another process has the data directory of a session by now:
// the one of the session is gone, and what it last said of itself is not so any more. Who
// joins makes those before it leave: a clock that was put back says otherwise.
func replaced(s *store.Session, all []store.Session) bool {
	return slices.ContainsFunc(all, func(other store.Session) bool {
		later := other.Joined.After(s.Joined)
		if s.Leaving != other.Leaving {
			later = s.Leaving
		}
		return later && other.Machine == s.Machine && other.DataDir == s.DataDir
	})
}

// NodeInput names a node in a path.
type NodeInput struct {
	ID string `path:"id" minLength:"1" maxLength:"255" doc:"The name of the node, or its session."`
}

type drainNodeInput struct {
	NodeInput
	Body *client.DrainRequest `required:"false"`
}

type nodeOutput struct {
	Body client.Node
}

func (a *api) drainNode(ctx context.Context, in *drainNodeInput) (*nodeOutput, error) {
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	return a.setDrain(ctx, in.ID, store.DrainNode{Reason: reason})
}

func (a *api) undrainNode(ctx context.Context, in *NodeInput) (*nodeOutput, error) {
	return a.setDrain(ctx, in.ID, store.DrainNode{Undo: true})
}

// setDrain drains a node or undoes that, and returns the node as it is then.
func (a *api) setDrain(ctx context.Context, id string, d store.DrainNode) (*nodeOutput, error) {
	before, err := a.nodes(ctx)
	if err != nil {
		return nil, err
	}
	d.Node, d.Actor = id, actorOf(ctx)
	for i := range before {
		if before[i].Session.String() == id {
			d.Node = before[i].Name
		}
	}
	if err := a.Store.Drain(ctx, d); errors.Is(err, store.ErrNotFound) {
		return nil, refuse(client.TypeNotFound, "there is no node %s", id)
	} else if err != nil {
		return nil, err
	}
	after, err := a.nodes(ctx)
	if err != nil {
		return nil, err
	}
	out := &nodeOutput{Body: client.Node{Name: d.Node, State: string(store.SessionLeft), Roles: []string{}}}
	for _, n := range after {
		// Of several sessions the latest is that of the process there is.
		if n.Name == d.Node && !n.Joined.Before(out.Body.Joined) {
			out.Body = n
		}
	}
	return out, nil
}

// nodeOf is a node as the API shows it.
func nodeOf(s *store.Session, now time.Time) client.Node {
	n := client.Node{
		Name: s.Node, Session: s.ID, State: string(s.State(now)), Roles: s.Roles, Labels: s.Labels, Handlers: s.Handlers,
		Capacity: s.Capacity, Running: s.Load.Running, Ready: s.Load.Ready,
		Version: s.Version, Zones: s.Zones, Address: s.Address, Joined: s.Joined, Renewed: s.Renewed,
		ClockAhead: float64(s.Load.ClockAhead.Round(time.Millisecond).Milliseconds()) / 1000,
	}
	if d := s.Drain; d != nil {
		n.DrainedBy, n.DrainReason, n.DrainedSince = d.By, d.Reason, d.Since
	}
	if n.Roles == nil {
		n.Roles = []string{}
	}
	return n
}
