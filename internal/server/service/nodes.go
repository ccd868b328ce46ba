package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/nodeinfo"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// nodeStore is the part of a store that nodes use.
type nodeStore interface {
	Sessions(ctx context.Context) ([]store.Session, error)
	Drain(ctx context.Context, d store.DrainNode) error
	store.RunLister
	nodeinfo.Notes
}

// Nodes shows and drains nodes.
type Nodes struct {
	store   nodeStore
	planner Planner
	remark  func() (warning phrase.Text, err error)
	about   func() client.Server
	alarms  *Notifications
	node    string
}

// List returns all nodes by name.
func (s *Nodes) List(ctx context.Context, who Caller) ([]client.Node, error) {
	if err := who.May(Read); err != nil {
		return nil, err
	}
	list, now, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	_, _, err = s.withReports(ctx, list, now)
	return list, err
}

// All returns all nodes by name, including nodes that have left in the last days.
func (s *Nodes) All(ctx context.Context, who Caller) ([]client.Node, error) {
	if err := who.May(Read); err != nil {
		return nil, err
	}
	list, now, err := s.all(ctx)
	if err != nil {
		return nil, err
	}
	_, gone, err := s.withReports(ctx, list, now)
	list = append(list, gone...)
	slices.SortStableFunc(list, func(x, y client.Node) int { return cmp.Compare(x.Name, y.Name) })
	return list, err
}

// withReports adds the reports of nodes, and returns them with the reporting nodes that are not in the list.
func (s *Nodes) withReports(ctx context.Context, list []client.Node, now time.Time) (all []nodeinfo.Info, gone []client.Node, err error) {
	all, err = nodeinfo.List(ctx, s.store, now)
	if err != nil {
		return nil, nil, err
	}
	for i := range all {
		p := &all[i]
		at := slices.IndexFunc(list, func(n client.Node) bool { return n.Session == p.Session })
		if at >= 0 {
			n := &list[at]
			n.StoreRead, n.StoreWrite, n.Partitions, n.Starts = seconds(p.Read), seconds(p.Write), p.Partitions, p.Starts[:]
			n.StoreP50, n.StoreP99, n.Disk = seconds(p.P50), seconds(p.P99), p.Disk
			for _, warning := range p.Warnings {
				n.Warnings = append(n.Warnings, warning.String())
			}
		} else if !slices.ContainsFunc(list, func(n client.Node) bool { return n.Name == p.Node }) {
			gone = append(gone, client.Node{
				Name: p.Node, Session: p.Session, State: string(store.SessionLeft), Roles: orNone(p.Roles), Version: p.Version, Address: p.Address,
				Joined: p.Joined, Renewed: p.Seen, Left: cmp.Or(p.Left, p.Seen),
			})
		}
	}
	return all, gone, nil
}

// reportOf returns the report of a node that has said something.
func reportOf(reports []nodeinfo.Info, n *client.Node) *nodeinfo.Info {
	return &reports[slices.IndexFunc(reports, func(r nodeinfo.Info) bool { return r.Session == n.Session })]
}

// Suiting counts the nodes that take runs, and how many of them may run a job.
func Suiting(nodes []client.Node, j *job.Job) (suiting, taking int) {
	place := j.Nodes()
	for i := range nodes {
		n := &nodes[i]
		handlers := n.Handlers
		if n.Engine != "" {
			handlers = append(slices.Clone(handlers), job.ContainerHandler)
		}
		if s := (&store.Session{Roles: n.Roles, Labels: n.Labels, Handlers: handlers}); n.State == string(store.SessionLive) && s.Works() {
			taking++
			if s.Suits(place.Labels, j.Run.HandlerName()) {
				suiting++
			}
		}
	}
	return suiting, taking
}

// seconds writes a duration to the microsecond.
func seconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }

// orNone is a list that JSON writes as one.
func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// About describes this server, with hints about it and the other nodes.
func (s *Nodes) About(ctx context.Context, who Caller) (client.Server, error) {
	if err := who.May(Read); err != nil {
		return client.Server{}, err
	}
	about := client.Server{Node: s.node, Roles: []string{}}
	if s.about != nil {
		about = s.about()
	}
	list, _, err := s.all(ctx)
	if err != nil {
		return client.Server{}, err
	}
	hints := about.Hints
	about.Hints = []client.Hint{}
	if who.May(Observe) == nil {
		about.Hints = append(about.Hints, hints...)
		about.Hints = append(about.Hints, differences(list)...)
		alarms, err := s.alarms.Hints(ctx, who)
		if err != nil {
			return client.Server{}, err
		}
		about.Hints = append(about.Hints, alarms...)
		if s.remark != nil {
			warning, err := s.remark()
			if err != nil {
				about.Hints = append(about.Hints, HintOf("wrong", phrase.OfStore, phrase.OfError(err), phrase.Text{}))
			} else if !warning.IsZero() {
				about.Hints = append(about.Hints, HintOf("note", phrase.OfStore, warning, phrase.Text{}))
			}
		}
	}
	for i := range list {
		if list[i].State == string(store.SessionLive) || list[i].State == string(store.SessionDrained) {
			about.Nodes++
		}
	}
	return about, nil
}

// HintOf returns a hint of a server in English, and as codes with arguments.
func HintOf(status string, check, found, do phrase.Text) client.Hint {
	h := client.Hint{Check: check.String(), Status: status, Found: found.String(), Do: do.String()}
	h.CheckCode, h.CheckArgs = reason.Say(check).For()
	h.FoundCode, h.FoundArgs = reason.Say(found).For()
	if !do.IsZero() {
		h.DoCode, h.DoArgs = reason.Say(do).For()
	}
	return h
}

// differences are hints about differences between nodes.
func differences(list []client.Node) (hints []client.Hint) {
	versions, zones := map[string]bool{}, map[string]bool{}
	for i := range list {
		n := &list[i]
		if n.State == string(store.SessionSilent) {
			continue
		}
		versions[n.Version], zones[n.Zones] = true, true
		switch {
		case n.ClockOff:
			hints = append(hints, HintOf("wrong", phrase.OfClock.Of(n.Name), phrase.ClockFarOff.Of(fmt.Sprintf("%.1f", n.ClockAhead)), phrase.SetClocks))
		case math.Abs(n.ClockAhead) > clockOffAfter.Seconds():
			hints = append(hints, HintOf("note", phrase.OfClock.Of(n.Name), phrase.ClockOff.Of(fmt.Sprintf("%.1f", n.ClockAhead)), phrase.SyncClocks))
		}
	}
	if len(versions) > 1 {
		hints = append(hints, HintOf("note", phrase.OfVersions, phrase.VersionsDiffer.Of(slices.Sorted(maps.Keys(versions))), phrase.OneVersion))
	}
	if len(zones) > 1 {
		hints = append(hints, HintOf("wrong", phrase.OfZones, phrase.ZoneDataDiffers.Of(slices.Sorted(maps.Keys(zones))), phrase.OneZoneData))
	}
	return hints
}

// Drain drains a node, by name or session.
func (s *Nodes) Drain(ctx context.Context, who Caller, id, reason string) (client.Node, error) {
	return s.setDrain(ctx, who, id, store.DrainNode{Reason: reason})
}

// Undrain ends the drain of a node.
func (s *Nodes) Undrain(ctx context.Context, who Caller, id string) (client.Node, error) {
	return s.setDrain(ctx, who, id, store.DrainNode{Undo: true})
}

// setDrain starts or ends the drain of a node, and returns the resulting node.
func (s *Nodes) setDrain(ctx context.Context, who Caller, id string, d store.DrainNode) (client.Node, error) {
	if err := who.May(Administer); err != nil {
		return client.Node{}, err
	}
	before, _, err := s.all(ctx)
	if err != nil {
		return client.Node{}, err
	}
	d.Node, d.Actor = id, who.Name
	for i := range before {
		if before[i].Session.String() == id {
			d.Node = before[i].Name
		}
	}
	if err := s.store.Drain(ctx, d); errors.Is(err, store.ErrNotFound) {
		return client.Node{}, Refuse(client.TypeNotFound, phrase.NoSuchNode.Of(id))
	} else if err != nil {
		return client.Node{}, err
	}
	after, _, err := s.all(ctx)
	if err != nil {
		return client.Node{}, err
	}
	drained := client.Node{Name: d.Node, State: string(store.SessionLeft), Roles: []string{}}
	for _, n := range after {
		// Of several sessions the latest belongs to the present process.
		if n.Name == d.Node && !n.Joined.Before(drained.Joined) {
			drained = n
		}
	}
	return drained, nil
}

// all returns all nodes by name and session.
func (s *Nodes) all(ctx context.Context) (list []client.Node, now time.Time, err error) {
	sessions, err := s.store.Sessions(ctx)
	if err != nil {
		return nil, now, err
	}
	now, err = s.store.Now(ctx)
	if err != nil {
		return nil, now, err
	}
	list = []client.Node{}
	for i := range sessions {
		if replaced(&sessions[i], sessions) {
			continue
		}
		n := nodeOf(&sessions[i], now)
		if sessions[i].Drain != nil {
			// The node's own count is some seconds old, too stale to watch the end of a
			// drain.
			mine, err := store.RunsOn(ctx, s.store, n.Session)
			if err != nil {
				return nil, now, err
			}
			n.Running = len(mine)
		}
		list = append(list, n)
	}
	slices.SortFunc(list, func(x, y client.Node) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), slices.Compare(x.Session[:], y.Session[:]))
	})
	return list, now, nil
}

// replaced reports whether a later process has the data directory of a session: then the
// session's process is gone and its last report is stale. A joining process makes earlier
// ones leave; that is more reliable than times, as clocks may be set back.
func replaced(s *store.Session, all []store.Session) bool {
	return slices.ContainsFunc(all, func(other store.Session) bool {
		later := other.Joined.After(s.Joined)
		if s.Leaving != other.Leaving {
			later = s.Leaving
		}
		return later && other.Machine == s.Machine && other.DataDir == s.DataDir
	})
}

// nodeOf is a node as clients see it.
func nodeOf(s *store.Session, now time.Time) client.Node {
	n := client.Node{
		Name: s.Node, Session: s.ID, State: string(s.State(now)), Roles: s.Roles, Labels: s.Labels, Handlers: s.Handlers,
		Capacity: s.Capacity, Running: s.Load.Running, Ready: s.Load.Ready,
		Version: s.Version, Zones: s.Zones, Address: s.Address, Joined: s.Joined, Renewed: s.Renewed,
		ClockAhead: float64(s.Load.ClockAhead.Round(time.Millisecond).Milliseconds()) / 1000, ClockOff: s.ClockOff,
	}
	if d := s.Drain; d != nil {
		n.DrainedBy, n.DrainReason, n.DrainedSince = d.By, d.Reason, d.Since
	}
	n.Engine, n.Handlers = placement.EngineOf(s.Handlers)
	if n.Roles == nil {
		n.Roles = []string{}
	}
	return n
}

// Why a node is not ready.
var (
	errNotRead = errors.New("the jobs have not been read yet")
	errNoStore = errors.New("the store does not answer")
)

// Ready returns why requests cannot be served, or remarks about a ready server. It reads
// the store, whose clock may be the clock of this process. A drained node is ready: it
// answers requests like any other. The route is public, so the answer has no details.
func (s *Nodes) Ready(ctx context.Context) (note string, err error) {
	sessions, err := s.store.Sessions(ctx)
	if err != nil {
		return "", errNoStore
	}
	if s.planner != nil {
		select {
		case <-s.planner.Ready():
		default:
			return "", errNotRead
		}
	}
	var notes []string
	if slices.ContainsFunc(sessions, func(n store.Session) bool { return n.Node == s.node && n.Drain != nil }) {
		notes = append(notes, "node is drained, not accepting runs")
	}
	if s.remark != nil {
		warning, err := s.remark()
		if err != nil {
			return "", err
		}
		if !warning.IsZero() {
			notes = append(notes, warning.String())
		}
	}
	return strings.Join(notes, "; "), nil
}

// namedMax is the most nodes that WithAPI names: one live node is enough.
const namedMax = 5

// WithAPI names the nodes with the role api, in words.
func (s *Nodes) WithAPI(ctx context.Context, who Caller) (phrase.Text, error) {
	if err := who.May(Read); err != nil {
		return phrase.Text{}, err
	}
	sessions, err := s.store.Sessions(ctx)
	if err != nil {
		return phrase.Text{}, err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return phrase.Text{}, err
	}
	sessions = slices.DeleteFunc(sessions, func(n store.Session) bool {
		return !n.Live(now) || !slices.Contains(n.Roles, store.RoleAPI)
	})
	if len(sessions) == 0 {
		return phrase.NoNodeWithAPI, nil
	}
	slices.SortFunc(sessions, func(x, y store.Session) int { return cmp.Compare(x.Node, y.Node) })
	var list []string
	for _, n := range sessions[:min(len(sessions), namedMax)] {
		list = append(list, "node "+n.Node+" at "+n.Address)
	}
	return phrase.APIAt.Of(list), nil
}
