package notify

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/store"
)

// lease names the node that delivers.
type lease struct {
	Node    string `json:"node"`
	version int64
	seen    time.Time // when the version was first seen, by this process's clock
	own     bool
}

// hold takes or renews the lease, and reports whether this node has it.
func (n *Notifier) hold(ctx context.Context) (bool, error) {
	now, is := n.Now(), &n.lease
	if is.own && now.Sub(is.seen) < leaseMax/3 {
		return true, nil
	}
	notes, err := n.Store.Notes(ctx, notification.LeaseNote, "", 1)
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
	put, err := n.Store.PutNote(ctx, store.Note{Name: notification.LeaseNote, Version: version, Text: text})
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
