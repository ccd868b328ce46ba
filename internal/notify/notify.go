// Package notify delivers notifications: it takes what has ended from the feed of the store and
// what lasts from those who look, keeps what is to be said in the store, and says it to the
// services of the channels. What is said, and when, package notice decides.
//
// One node delivers at a time, by a lease in the store. Nothing is lost when the lease goes to
// another: each write of the state compares versions, an entry of the feed stays until its
// event is in the state, and an event stays in the state until its message was delivered.
package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/notice"
	"github.com/belfry-cron/belfry/internal/trouble"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// consumer is the name of the notifications in the feed of the store.
var consumer = notice.Consumer().Name

const (
	// passEvery is how often the node that delivers looks for events and for what is due.
	passEvery = 2 * time.Second
	// lookEvery is how often it looks for what lasts and for what is over.
	lookEvery = 15 * time.Second
	// leaseMax is how long the lease holds that is not renewed: longer than the store takes
	// to answer, and short beside what people notice.
	leaseMax = 15 * time.Second
	// batch is how many events are read from the feed at once.
	batch = 200
	// groupsMax is how many groups a channel has at most, and allGroupsMax all channels.
	// Events of others are counted as dropped.
	groupsMax    = 1000
	allGroupsMax = 10_000
	// notesPage is how many notes are read at once.
	notesPage = 200
	// checkMax is how many jobs are looked at in one look for whether they have recovered,
	// each with a short read of history.
	checkMax = 100
	// saveMax bounds the write of what came of a delivery when the node stops.
	saveMax = 5 * time.Second
)

// Store is the part of a store that notifications use.
type Store interface {
	store.Feed
	store.Notes
	Channels(ctx context.Context) ([]*job.Channel, error)
	JobsByUID(ctx context.Context, uids []job.ID) ([]*store.Job, error)
	Attempts(ctx context.Context, q store.HistoryQuery) (list []store.Record, next store.RecordRef, err error)
	Now(ctx context.Context) (time.Time, error)
}

// Config is what a Notifier needs.
type Config struct {
	Store Store
	// Node is the name of this node.
	Node string
	// Send delivers a message. Its error is a *notice.Failure.
	Send func(ctx context.Context, c *job.Channel, m *notice.Message) error
	// Look returns what lasts now, but for failures of jobs. Nil: nothing lasts.
	Look func(ctx context.Context) (notice.Lasting, error)
	// Now is the clock of the process. Default: time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Notifier delivers notifications. Use New.
type Notifier struct {
	Config
	trouble *trouble.Trouble
	wake    chan struct{} // has room for one: that something has ended or was answered

	mu    sync.Mutex // guards what follows
	stats Stats

	// Only Run uses what follows.
	lease    lease
	wanted   store.Consumer // as it was put; its Name is "" if none was
	channels map[job.ID]*job.Channel
	groups   map[string]*group // by the name of the note
	states   map[job.ID]*state
	sending  map[job.ID]bool
	done     chan outcome // of deliveries; has room for all channels
	looked   time.Time
	sends    sync.WaitGroup
}

// Stats is how it is with the notifications of this process.
type Stats struct {
	Delivers bool  // this node has the lease
	Pending  int   // groups with something to say
	Open     int   // groups with a problem that lasts
	Sent     int64 // messages
	Failed   int64 // tries
	GivenUp  int64 // messages
	Dropped  int64 // events
}

// ref is the note that something is kept in.
type ref struct {
	note    string
	version int64
}

// group is a group with its note.
type group struct {
	*notice.Group
	ref
}

// state is the state of a channel with its note.
type state struct {
	*notice.ChannelState
	ref
}

// lease is who delivers.
type lease struct {
	Node    string `json:"node"`
	version int64
	seen    time.Time // when the version was first seen, by the clock of this process
	own     bool
}

// outcome is what came of a delivery.
type outcome struct {
	channel *job.Channel
	groups  []*group
	err     error
}

// errStale says that another process has written what this one remembers.
var errStale = errors.New("another node has changed the notifications")

// New returns a notifier.
func New(c Config) *Notifier {
	if c.Now == nil {
		c.Now = time.Now
	}
	n := &Notifier{Config: c, wake: make(chan struct{}, 1), done: make(chan outcome, store.ChannelsMax), sending: map[job.ID]bool{}}
	n.trouble = trouble.With(c.Log, "the store cannot keep notifications; they wait", "the store keeps notifications again")
	n.forget()
	return n
}

// Wake makes the node that delivers look for events soon. It never waits, and may be called
// from any goroutine.
func (n *Notifier) Wake() {
	select {
	case n.wake <- struct{}{}:
	default: // it will look
	}
}

// Stats returns how it is now. It may be called from any goroutine.
func (n *Notifier) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// count changes the stats.
func (n *Notifier) count(change func(*Stats)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.stats)
}

// Run delivers until ctx ends, while this node has the lease.
func (n *Notifier) Run(ctx context.Context) {
	ticker := time.NewTicker(passEvery)
	defer ticker.Stop()
	for {
		err := n.pass(ctx)
		switch {
		case ctx.Err() != nil:
			n.stop(ctx)
			return
		case errors.Is(err, errStale):
			n.forget()
		default:
			n.trouble.Saw(err)
		}
		n.sum()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-n.wake:
		}
	}
}

// stop waits for what is being sent, keeps what came of it, and gives the lease to another.
func (n *Notifier) stop(ctx context.Context) {
	n.sends.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveMax)
	defer cancel()
	if err := n.settle(ctx); err != nil {
		n.Log.Debug("the latest deliveries are not kept, and their messages will be sent again", "error", err)
	}
	if n.lease.own {
		_, _ = n.Store.PutNote(ctx, store.Note{Name: notice.LeaseNote, Version: n.lease.version}) // it would run out
	}
}

// forget drops what is remembered, so that it is read again.
func (n *Notifier) forget() {
	n.channels, n.groups, n.states = nil, nil, map[job.ID]*state{}
	n.looked = time.Time{}
}

// sum counts for the metrics what is there.
func (n *Notifier) sum() {
	pending, open := 0, 0
	for _, g := range n.groups {
		if g.Pending() {
			pending++
		}
		if len(g.Open()) > 0 {
			open++
		}
	}
	n.count(func(s *Stats) { s.Delivers, s.Pending, s.Open = n.lease.own, pending, open })
}

// pass does once what is to be done.
func (n *Notifier) pass(ctx context.Context) error {
	list, err := n.Store.Channels(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 && !n.lease.own {
		return nil // most servers have none, and then this is all
	}
	if held, err := n.hold(ctx); err != nil || !held {
		return err
	}
	if err := n.take(ctx, list); err != nil {
		return err
	}
	if err := n.settle(ctx); err != nil {
		return err
	}
	if err := n.drain(ctx); err != nil {
		return err
	}
	if now := n.Now(); now.Sub(n.looked) >= lookEvery {
		n.looked = now
		if err := n.look(ctx); err != nil {
			return err
		}
	}
	return n.send(ctx)
}

// hold takes or renews the lease, and tells whether this node has it.
func (n *Notifier) hold(ctx context.Context) (bool, error) {
	now, is := n.Now(), &n.lease
	if is.own && now.Sub(is.seen) < leaseMax/3 {
		return true, nil
	}
	notes, err := n.Store.Notes(ctx, notice.LeaseNote, "", 1)
	if err != nil {
		return false, err
	}
	var version int64
	if len(notes) > 0 {
		version = notes[0].Version
	}
	if version != is.version {
		if is.own {
			n.forget() // another node has taken it
		}
		*is = lease{version: version, seen: now}
	}
	if !is.own && version != 0 && now.Sub(is.seen) < leaseMax {
		return false, nil
	}
	text, err := json.Marshal(lease{Node: n.Node})
	if err != nil {
		return false, err
	}
	put, err := n.Store.PutNote(ctx, store.Note{Name: notice.LeaseNote, Version: version, Text: text})
	if errors.Is(err, store.ErrConflict) {
		is.own = false
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !is.own {
		n.forget()
	}
	*is = lease{version: put, seen: now, own: true}
	return true, nil
}

// take goes by the channels as they are: it reads their state if it is not known, forgets that
// of channels that are gone, and asks the feed for what the rules want.
func (n *Notifier) take(ctx context.Context, list []*job.Channel) error {
	n.channels = make(map[job.ID]*job.Channel, len(list))
	for _, c := range list {
		n.channels[c.UID] = c.WithDefaults()
	}
	if n.groups == nil {
		if err := n.read(ctx); err != nil {
			return err
		}
	}
	for _, note := range slices.Sorted(maps.Keys(n.groups)) {
		if g := n.groups[note]; n.channels[g.UID] == nil {
			if err := n.remove(ctx, g); err != nil {
				return err
			}
		}
	}
	for uid, s := range n.states {
		if n.channels[uid] == nil {
			if err := put(ctx, n.Store, &s.ref, nil); err != nil {
				return err
			}
			delete(n.states, uid)
		}
	}
	return n.consume(ctx, list)
}

// consume asks the feed for the outcomes that the rules want, or for nothing without channels.
func (n *Notifier) consume(ctx context.Context, list []*job.Channel) error {
	if len(list) == 0 {
		if n.wanted.Name == "" {
			return nil
		}
		n.wanted = store.Consumer{}
		return n.Store.DeleteConsumer(ctx, consumer)
	}
	if n.wanted.Name != "" {
		return nil
	}
	c := notice.Consumer()
	if err := n.Store.PutConsumer(ctx, c); err != nil {
		return err
	}
	n.wanted = c
	return nil
}

// read reads the state from the store.
func (n *Notifier) read(ctx context.Context) error {
	groups, states := map[string]*group{}, map[job.ID]*state{}
	err := eachNote(ctx, n.Store, notice.GroupNotes, func(note store.Note) error {
		g := &group{&notice.Group{}, ref{note.Name, note.Version}}
		groups[note.Name] = g
		return decode(note, g.Group)
	})
	if err == nil {
		err = eachNote(ctx, n.Store, notice.ChannelNotes, func(note store.Note) error {
			s := &state{&notice.ChannelState{}, ref{note.Name, note.Version}}
			if err := decode(note, s.ChannelState); err != nil {
				return err
			}
			states[s.UID] = s
			return nil
		})
	}
	if err == nil {
		n.groups, n.states = groups, states
	}
	return err
}

// eachNote calls f for each note whose name begins with a prefix.
func eachNote(ctx context.Context, s store.Notes, prefix string, f func(store.Note) error) error {
	for after := ""; ; {
		page, err := s.Notes(ctx, prefix, after, notesPage)
		if err != nil {
			return err
		}
		for _, note := range page {
			if err := f(note); err != nil {
				return err
			}
			after = note.Name
		}
		if len(page) < notesPage {
			return nil
		}
	}
}

func decode(note store.Note, into any) error {
	if err := json.Unmarshal(note.Text, into); err != nil {
		return fmt.Errorf("note %s: %w: %w", note.Name, store.ErrDamaged, err)
	}
	return nil
}

// put writes something to its note; nil removes the note.
func put(ctx context.Context, s store.Notes, r *ref, what any) error {
	note := store.Note{Name: r.note, Version: r.version}
	switch {
	case what != nil:
		var err error
		if note.Text, err = json.Marshal(what); err != nil {
			return err
		}
	case r.version == 0:
		return nil // it was never written
	}
	version, err := s.PutNote(ctx, note)
	if errors.Is(err, store.ErrConflict) {
		return errStale
	}
	if err == nil {
		r.version = version
	}
	return err
}

func (n *Notifier) remove(ctx context.Context, g *group) error {
	if err := put(ctx, n.Store, &g.ref, nil); err != nil {
		return err
	}
	delete(n.groups, g.note)
	return nil
}

// state returns what is known of the deliveries of a channel.
func (n *Notifier) state(c *job.Channel) *state {
	s := n.states[c.UID]
	if s == nil {
		s = &state{&notice.ChannelState{UID: c.UID}, ref{note: notice.ChannelNotes + c.UID.String()}}
		n.states[c.UID] = s
	}
	s.Channel = c.FullName()
	return s
}

// changes are what an event or an end has changed, to be written.
type changes struct {
	groups map[*group]bool
	states map[*state]bool
}

func newChanges() *changes {
	return &changes{map[*group]bool{}, map[*state]bool{}}
}

// save writes what has changed.
func (n *Notifier) save(ctx context.Context, c *changes) error {
	for g := range c.groups {
		if err := put(ctx, n.Store, &g.ref, g.Group); err != nil {
			return err
		}
	}
	for s := range c.states {
		if err := put(ctx, n.Store, &s.ref, s.ChannelState); err != nil {
			return err
		}
	}
	return nil
}

// note takes an event into the groups of the channels that want it.
func (n *Notifier) note(e notice.Event, now time.Time, done *changes) {
	for _, c := range n.channels {
		if !notice.Wants(c, &e, now) {
			continue
		}
		name := notice.GroupNotes + c.UID.String() + "/" + notice.GroupID(c, &e)
		g := n.groups[name]
		if g == nil {
			if !n.room(c) {
				s := n.state(c)
				s.Dropped += int64(max(e.Count, 1))
				done.states[s] = true
				n.count(func(s *Stats) { s.Dropped += int64(max(e.Count, 1)) })
				continue
			}
			g = &group{notice.NewGroup(c, &e), ref{note: name}}
			n.groups[name] = g
		}
		if g.Add(c, e, now) {
			done.groups[g] = true
		}
	}
}

// room tells whether a channel may have one more group.
func (n *Notifier) room(c *job.Channel) bool {
	if len(n.groups) >= allGroupsMax {
		return false
	}
	own := 0
	for _, g := range n.groups {
		if g.UID == c.UID {
			own++
		}
	}
	return own < groupsMax
}

// drain takes what has ended from the feed. An entry is taken when its event is kept.
func (n *Notifier) drain(ctx context.Context) error {
	if n.wanted.Name == "" {
		return nil
	}
	for {
		entries, err := n.Store.Ended(ctx, consumer, "", batch)
		if errors.Is(err, store.ErrNotFound) {
			n.wanted = store.Consumer{} // somebody has removed it
			return nil
		}
		if err != nil || len(entries) == 0 {
			return err
		}
		done, now := newChanges(), n.Now()
		events, err := n.events(ctx, entries)
		if err != nil {
			return err
		}
		for _, e := range events {
			n.note(e, now, done)
		}
		if err := n.save(ctx, done); err != nil {
			return err
		}
		refs := make([]store.FeedRef, len(entries))
		for i := range entries {
			refs[i] = entries[i].Ref
		}
		if err := n.Store.Taken(ctx, consumer, refs); err != nil || len(entries) < batch {
			return err
		}
	}
}

// events returns what entries of the feed tell of.
func (n *Notifier) events(ctx context.Context, entries []store.FeedEntry) (list []notice.Event, err error) {
	uids := map[job.ID]bool{}
	for i := range entries {
		uids[entries[i].Record.Run.JobUID] = true
	}
	jobs, err := n.jobs(ctx, slices.SortedFunc(maps.Keys(uids), compareIDs))
	if err != nil {
		return nil, err
	}
	rows := map[job.ID]int{}
	for i := range entries {
		r := &entries[i].Record
		e := notice.Event{
			Kind: job.NoticeFailed, Namespace: r.Run.Namespace, Job: r.Run.Name, UID: r.Run.JobUID, Node: r.Attempt.Node, Run: r.Run.ID,
			Attempt: r.Attempt.Number, Time: r.Attempt.Ended, Text: r.Attempt.Reason, Count: r.Count, Lasting: true,
		}
		if j := jobs[r.Run.JobUID]; j != nil {
			e.Labels = j.Definition.Labels
		}
		if r.Attempt.Outcome == job.OutcomeMissed {
			e.Kind, e.Lasting = job.NoticeMissed, false
			list = append(list, e)
			continue
		}
		list = append(list, e)
		if !n.wantsRows() {
			continue
		}
		if _, known := rows[e.UID]; !known {
			if rows[e.UID], err = n.inARow(ctx, e.UID); err != nil {
				rows[e.UID] = n.counted(e.UID) + 1 // history is away, which must not delay what has failed
			}
		}
		e.Kind, e.InARow = job.NoticeFailing, rows[e.UID]
		list = append(list, e)
	}
	return list, nil
}

// wantsRows tells whether a channel wants to know of failures in a row.
func (n *Notifier) wantsRows() bool {
	for _, c := range n.channels {
		for _, r := range c.Rules {
			if slices.Contains(r.Events, job.NoticeFailing) {
				return true
			}
		}
	}
	return false
}

func (n *Notifier) jobs(ctx context.Context, uids []job.ID) (map[job.ID]*store.Job, error) {
	jobs := map[job.ID]*store.Job{}
	for some := range slices.Chunk(uids, store.MaxBatch) {
		list, err := n.Store.JobsByUID(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, j := range list {
			if j != nil && !j.Deleted {
				jobs[j.Definition.UID] = j
			}
		}
	}
	return jobs, nil
}

// rowMax is how many ends of a job are counted: as many as a rule may name, and some that say
// nothing about the job.
const rowMax = 30

// inARow returns how many runs of a job have failed since its latest success, 0 if none has.
func (n *Notifier) inARow(ctx context.Context, uid job.ID) (failures int, err error) {
	list, _, err := n.Store.Attempts(ctx, store.HistoryQuery{Job: uid, FinalOnly: true, Limit: rowMax})
	if err != nil {
		return 0, err
	}
	for i := range list {
		switch outcome := list[i].Attempt.Outcome; {
		case outcome == job.OutcomeSucceeded:
			return failures, nil
		case outcome.Alarms() && outcome != job.OutcomeMissed:
			failures++
		}
	}
	return failures, nil
}

// counted returns how many failures of a job were counted in a group.
func (n *Notifier) counted(uid job.ID) (count int) {
	for _, g := range n.groups {
		for _, item := range g.Open() {
			if item.UID == uid && item.Kind == job.NoticeFailed {
				count = max(count, item.Count)
			}
		}
	}
	return count
}

// look takes what lasts, and ends what is over.
func (n *Notifier) look(ctx context.Context) error {
	done, now := newChanges(), n.Now()
	if n.Look != nil {
		lasting, err := n.Look(ctx)
		if err != nil {
			return err
		}
		if err := n.lasting(ctx, &lasting, now, done); err != nil {
			return err
		}
	}
	unmet, err := n.overtime(ctx, now, done)
	if err != nil {
		return err
	}
	if err := n.recovered(ctx, now, done); err != nil {
		return err
	}
	if err := n.save(ctx, done); err != nil {
		return err
	}
	for _, note := range unmet {
		note.Text = nil
		if _, err := n.Store.PutNote(ctx, note); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.groups)) {
		if g := n.groups[name]; !n.sending[g.UID] && g.Idle(n.channels[g.UID], now) {
			if err := n.remove(ctx, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// lasting takes what lasts, and ends what did and is over.
func (n *Notifier) lasting(ctx context.Context, l *notice.Lasting, now time.Time, done *changes) error {
	uids := map[job.ID]bool{}
	is := map[string]bool{}
	for i := range l.Events {
		is[l.Events[i].Key()] = true
		if !l.Events[i].UID.IsZero() {
			uids[l.Events[i].UID] = true
		}
	}
	jobs, err := n.jobs(ctx, slices.SortedFunc(maps.Keys(uids), compareIDs))
	if err != nil {
		return err
	}
	for _, e := range l.Events {
		if j := jobs[e.UID]; j != nil {
			e.Labels = j.Definition.Labels
		}
		e.Lasting = true
		n.note(e, now, done)
	}
	for _, g := range n.groups {
		for _, item := range g.Open() {
			if !is[item.Key()] && l.Over(&item.Event, !g.Acked.IsZero()) && g.End(item.Key(), now) {
				done.groups[g] = true
			}
		}
	}
	return nil
}

// Unmet is an expectation of a job that a run does not meet, as it is kept until it is taken.
type Unmet struct {
	Namespace string    `json:"namespace"`
	Job       string    `json:"job"`
	UID       job.ID    `json:"uid"`
	Run       job.ID    `json:"run"`
	Attempt   int       `json:"attempt"`
	Node      string    `json:"node,omitempty"`
	Time      time.Time `json:"time"`
	Text      string    `json:"text"`
}

// Overdue keeps expectations that runs do not meet for the node that delivers. Without
// channels it does nothing.
func Overdue(ctx context.Context, s Store, now time.Time, alerts []store.Alert) error {
	if channels, err := s.Channels(ctx); err != nil || len(channels) == 0 {
		return err
	}
	for i := range alerts {
		r := &alerts[i].Run
		for _, text := range alerts[i].Unmet {
			u := Unmet{r.Namespace, r.Name, r.JobUID, r.ID, r.Attempt, r.Node, now.UTC(), text}
			note, err := json.Marshal(u)
			if err != nil {
				return err
			}
			name := notice.UnmetNotes + r.ID.String() + "-" + fmt.Sprintf("%08x", hashOf(text))
			_, err = s.PutNote(ctx, store.Note{Name: name, Text: note})
			if err != nil && !errors.Is(err, store.ErrConflict) { // it is kept already
				return err
			}
		}
	}
	return nil
}

// overtime takes expectations that are not met. Their notes are to be removed when the events
// are kept.
func (n *Notifier) overtime(ctx context.Context, now time.Time, done *changes) (notes []store.Note, err error) {
	if notes, err = n.Store.Notes(ctx, notice.UnmetNotes, "", notesPage); err != nil || len(notes) == 0 {
		return nil, err
	}
	list := make([]Unmet, len(notes))
	uids := make([]job.ID, len(notes))
	for i, note := range notes {
		if err := json.Unmarshal(note.Text, &list[i]); err != nil {
			return nil, fmt.Errorf("note %s: %w: %w", note.Name, store.ErrDamaged, err)
		}
		uids[i] = list[i].UID
	}
	slices.SortFunc(uids, compareIDs)
	jobs, err := n.jobs(ctx, slices.Compact(uids))
	if err != nil {
		return nil, err
	}
	for _, u := range list {
		e := notice.Event{
			Kind: job.NoticeUnmet, Namespace: u.Namespace, Job: u.Job, UID: u.UID, Node: u.Node, Run: u.Run, Attempt: u.Attempt, Time: u.Time, Text: u.Text,
		}
		if j := jobs[u.UID]; j != nil {
			e.Labels = j.Definition.Labels
		}
		n.note(e, now, done)
	}
	return notes, nil
}

// recovered ends the failures of jobs that have succeeded since, are gone or no longer active.
func (n *Notifier) recovered(ctx context.Context, now time.Time, done *changes) error {
	failing := map[job.ID][]*group{}
	for _, g := range n.groups {
		for _, item := range g.Open() {
			if item.Kind == job.NoticeFailed || item.Kind == job.NoticeFailing {
				failing[item.UID] = append(failing[item.UID], g)
			}
		}
	}
	// Map order is random, so that all get their turn when there are too many.
	uids := slices.Collect(maps.Keys(failing))
	uids = uids[:min(len(uids), checkMax)]
	jobs, err := n.jobs(ctx, uids)
	if err != nil {
		return err
	}
	for _, uid := range uids {
		if jobs[uid] != nil {
			if failures, err := n.inARow(ctx, uid); err != nil || failures > 0 {
				continue // without history the next look tells
			}
		}
		for _, g := range failing[uid] {
			for _, item := range g.Open() {
				if item.UID == uid && (item.Kind == job.NoticeFailed || item.Kind == job.NoticeFailing) && g.End(item.Key(), now) {
					done.groups[g] = true
				}
			}
		}
	}
	return nil
}

// send begins to deliver what is due, one message of each channel at a time: one that is slow
// holds no other up.
func (n *Notifier) send(ctx context.Context) error {
	byChannel := map[job.ID][]*notice.Group{}
	notes := map[*notice.Group]*group{}
	for _, g := range n.groups {
		byChannel[g.UID] = append(byChannel[g.UID], g.Group)
		notes[g.Group] = g
	}
	now := n.Now()
	for uid, groups := range byChannel {
		c := n.channels[uid]
		if n.sending[uid] {
			continue
		}
		s := n.state(c)
		if s.Version != c.Version { // it was changed: what was wrong may be right
			s.Version, s.Next, s.Tries = c.Version, time.Time{}, 0
			for _, g := range groups {
				g.Next, g.Refused = time.Time{}, false
			}
		}
		due := notice.Plan(c, s.ChannelState, groups, now)
		if len(due) == 0 {
			continue
		}
		o := outcome{channel: c}
		for _, g := range due {
			g.Begin()
			// If the process dies now, another sends the same again under the same id.
			if err := put(ctx, n.Store, &notes[g].ref, g); err != nil {
				return err
			}
			o.groups = append(o.groups, notes[g])
		}
		m := notice.MessageOf(c, due, now)
		n.sending[uid] = true
		n.sends.Go(func() {
			o.err = n.Send(ctx, c, &m)
			n.done <- o
			n.Wake()
		})
	}
	return nil
}

// settle keeps what came of deliveries.
func (n *Notifier) settle(ctx context.Context) error {
	for {
		select {
		case o := <-n.done:
			delete(n.sending, o.channel.UID)
			if err := n.settleOne(ctx, &o); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (n *Notifier) settleOne(ctx context.Context, o *outcome) error {
	if n.channels[o.channel.UID] == nil {
		return nil // it was deleted
	}
	now, done := n.Now(), newChanges()
	s := n.state(o.channel)
	done.states[s] = true
	var failure *notice.Failure
	if o.err != nil && !errors.As(o.err, &failure) {
		failure = &notice.Failure{Err: o.err, Unsure: true}
	}
	if failure == nil {
		s.Delivered(o.channel, now)
		n.count(func(s *Stats) { s.Sent++ })
	} else {
		if s.Tries == 0 {
			n.Log.Warn("a notification was not delivered; it is tried again", "channel", o.channel.FullName(), "error", failure)
		}
		s.Fail(failure, now)
		n.count(func(s *Stats) { s.Failed++ })
	}
	for _, sent := range o.groups {
		g := n.groups[sent.note]
		if g == nil || g.Trying != sent.Trying {
			continue // it is gone, or another node has sent it meanwhile
		}
		done.groups[g] = true
		switch {
		case failure == nil:
			g.Delivered(now)
		case failure.Refused:
			if g.Refuse(failure, now) {
				s.GivenUp++
				n.count(func(s *Stats) { s.GivenUp++ })
				n.Log.Error("a notification was refused for a day and is given up", "channel", o.channel.FullName(), "about", g.About, "error", failure)
			}
		default:
			g.Retry(failure)
		}
	}
	return n.save(ctx, done)
}

// hashOf tells texts apart.
func hashOf(text string) (h uint32) {
	for _, b := range []byte(strings.TrimSpace(text)) {
		h = h*31 + uint32(b)
	}
	return h
}

func compareIDs(a, b job.ID) int { return bytes.Compare(a[:], b[:]) }
