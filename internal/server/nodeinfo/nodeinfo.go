// Package nodeinfo keeps the reports that nodes make once a minute, for people: the latency of the
// store, the numbers of planned and started runs, and the time of the report. No decision depends
// on it. The reports are notes of the store, and stay for some days after a node has gone.
package nodeinfo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

const (
	// Kept is how long a departed node is remembered.
	Kept = 7 * 24 * time.Hour
	// prefix of the keys of the notes.
	prefix = "node/"
	// most is how many nodes are remembered: containers may have a new name at each start.
	most = 1000
	// page is how many notes one read returns.
	page = 200
	// nameMax keeps the names of notes within the bound of a store.
	nameMax = 150
)

// Hour counts starts by minute, the earliest first; the last minute is the present one.
type Hour [60]int

// Info is a node's report about itself.
type Info struct {
	Node    string
	Session job.ID
	Version string
	Roles   []string
	Address string
	Joined  time.Time
	Seen    time.Time // by the clock of the store
	Left    time.Time // zero while it is present, or if it could not report its end
	// Read and Write are how long the store took for the last read and write of a note.
	Read, Write time.Duration
	// P50 and P99 are of the last calls of the store that it answered.
	P50, P99   time.Duration
	Partitions int
	Starts     Hour
	// Warnings are what a person should change about the node, although it works.
	Warnings []job.Reason `json:",omitempty"`
	// Disk is how little space the data directory has, "" for enough, and DiskSince since when.
	Disk      string    `json:",omitempty"`
	DiskSince time.Time `json:",omitzero"`
}

// Notes is what is needed of a store.
type Notes interface {
	Notes(ctx context.Context, prefix, after string, limit int) ([]store.Note, error)
	PutNote(ctx context.Context, n store.Note) (int64, error)
	Now(ctx context.Context) (time.Time, error)
}

// List returns the last reports of all nodes that reported within [Kept], by name. now is the time of
// the store.
func List(ctx context.Context, s Notes, now time.Time) ([]Info, error) {
	var list []Info
	err := each(ctx, s, func(n *store.Note) error {
		var p Info
		if json.Unmarshal(n.Text, &p) == nil && now.Sub(p.Seen) < Kept {
			list = append(list, p)
		}
		return nil
	})
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Node, b.Node) })
	return list, err
}

func each(ctx context.Context, s Notes, f func(*store.Note) error) error {
	after := ""
	for range most / page {
		notes, err := s.Notes(ctx, prefix, after, page)
		if err != nil {
			return err
		}
		for i := range notes {
			if err := f(&notes[i]); err != nil {
				return err
			}
		}
		if len(notes) < page {
			return nil
		}
		after = notes[len(notes)-1].Name
	}
	return nil
}

// Reporter writes the reports of one node.
type Reporter struct {
	Store Notes
	// About returns the present report of the node, without times of the store.
	About func() Info
	// Clock measures the latency of the store.
	Clock func() time.Duration

	took  time.Duration // latency of the last write
	swept time.Time
}

// tellEvery is the interval of a node's reports, but the second comes settleAfter the first, since
// partitions move when a node joins. joinEvery is the interval of checks whether it has joined, and
// sweepEvery of removing old notes.
const (
	tellEvery   = time.Minute
	settleAfter = 10 * time.Second
	joinEvery   = time.Second
	sweepEvery  = time.Hour
)

// Run writes reports until ctx ends, and then that the node has left.
func (t *Reporter) Run(ctx context.Context, failed func(error)) {
	for next := settleAfter; ; {
		wait := joinEvery
		if !t.About().Session.IsZero() { // it has joined
			if err := t.Tell(ctx, false); ctx.Err() == nil {
				failed(err)
			}
			wait, next = next, tellEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Tell writes a report of the node, or that it leaves.
func (t *Reporter) Tell(ctx context.Context, leaves bool) error {
	p := t.About()
	if p.Session.IsZero() {
		return nil // it has not joined yet
	}
	name := nameOf(p.Node)
	began := t.Clock()
	notes, err := t.Store.Notes(ctx, name, "", 1)
	if err != nil {
		return fmt.Errorf("read the note of node %s: %w", p.Node, err)
	}
	p.Read, p.Write = t.Clock()-began, t.took
	if p.Seen, err = t.Store.Now(ctx); err != nil {
		return err
	}
	if leaves {
		p.Left = p.Seen
	}
	n := store.Note{Name: name}
	if len(notes) == 1 && notes[0].Name == name {
		n.Version = notes[0].Version
	}
	if n.Text, err = json.Marshal(&p); err != nil {
		return err
	}
	began = t.Clock()
	// A conflict is with another node of the same name, which has reported.
	if _, err := t.Store.PutNote(ctx, n); err != nil && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("write the note of node %s: %w", p.Node, err)
	}
	t.took = t.Clock() - began
	if p.Seen.Sub(t.swept) < sweepEvery {
		return nil
	}
	t.swept = p.Seen
	return t.sweep(ctx, p.Seen)
}

// sweep removes notes older than [Kept].
func (t *Reporter) sweep(ctx context.Context, now time.Time) error {
	return each(ctx, t.Store, func(n *store.Note) error {
		var p Info
		if json.Unmarshal(n.Text, &p) == nil && now.Sub(p.Seen) < Kept {
			return nil
		}
		_, err := t.Store.PutNote(ctx, store.Note{Name: n.Name, Version: n.Version})
		if errors.Is(err, store.ErrConflict) {
			return nil // it was written again
		}
		return err
	})
}

// nameOf returns the name of the note of a node.
func nameOf(node string) string {
	name := prefix + url.PathEscape(node)
	return name[:min(len(name), nameMax)]
}

// Minutes counts starts by minute. Its methods may be called from many goroutines.
type Minutes struct {
	mu   sync.Mutex
	last int64 // the minute of the last count, since 1970
	hour Hour
}

// Add counts a start.
func (m *Minutes) Add(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.move(now)
	m.hour[len(m.hour)-1]++
}

// Hour returns the counts of the hour until now.
func (m *Minutes) Hour(now time.Time) Hour {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.move(now)
	return m.hour
}

// move makes the present minute the last one, unless the clock was set back.
func (m *Minutes) move(now time.Time) {
	minute := now.Unix() / 60
	for passed := min(minute-m.last, int64(len(m.hour))); passed > 0; passed-- {
		copy(m.hour[:], m.hour[1:])
		m.hour[len(m.hour)-1] = 0
	}
	m.last = max(m.last, minute)
}
