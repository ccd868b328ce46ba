package engine

import (
	"cmp"
	"iter"
	"time"

	"github.com/belfry-cron/belfry/store"
)

// All rules about silence are here: only time in which the store was reachable counts.
// During an outage of the store every node is silent, so a session that was renewed
// without a gap is the witness that the store was reachable.

// Renew records a renewal of a session at a moment of the store's clock.
func Renew(s *store.Session, now time.Time) {
	if now.Sub(s.Renewed) > store.SessionLife {
		s.BeforeGap, s.Steady = s.Renewed, now
	}
	s.Renewed = now
}

// Silence returns how long a node has been silent since its last renewal. Renewed
// sessions are the witnesses: each vouches for the time since it is steady, and the
// longest counts. Without a witness it is 0.
func Silence(now, heard time.Time, sessions iter.Seq[*store.Session]) time.Duration {
	var longest time.Duration
	for witness := range sessions {
		if isWitness(now, witness) {
			longest = max(longest, min(now.Sub(heard), now.Sub(witness.Steady)))
		}
	}
	return longest
}

// isWitness reports whether a session proves that the store has been reachable since its Steady.
// Sessions of an older Belfry do not record that and prove nothing.
func isWitness(now time.Time, s *store.Session) bool {
	return !s.Steady.IsZero() && now.Sub(s.Renewed) < store.SessionLife
}

// IsLive reports whether a session is a member of the cluster. After an outage of the store, known
// from witnesses, the previous members have time to return.
func IsLive(now time.Time, s *store.Session, sessions iter.Seq[*store.Session]) bool {
	if s.Leaving || s.Live(now) {
		return !s.Leaving
	}
	known := false
	for witness := range sessions {
		// A session that began after the silence proves nothing about the time before.
		if !isWitness(now, witness) || witness.BeforeGap.IsZero() && witness.Steady.After(s.Renewed) {
			continue
		}
		if silentFor(now, s.Renewed, witness) >= store.SessionLife {
			return false
		}
		known = true
	}
	return known
}

// silentFor returns the time since a moment without the last gap of a witness.
func silentFor(now, heard time.Time, witness *store.Session) time.Duration {
	gap := witness.BeforeGap
	if gap.Before(heard) {
		gap = heard
	}
	return now.Sub(heard) - max(0, witness.Steady.Sub(gap))
}

// LostAfter returns how long the node of a running attempt may be silent: the value of the
// job at the claim, because the node ends the attempt by that. Runs claimed before version
// 2026-12 lack it; for them the current job counts.
func LostAfter(r *store.Run, policy time.Duration) time.Duration {
	return cmp.Or(r.LostAfter, policy)
}

// IsLost reports whether a running attempt may be recorded as lost: its session is silent
// for longer than lostAfter, or has ended. session may be nil.
func IsLost(now time.Time, lostAfter time.Duration, session *store.Session, sessions iter.Seq[*store.Session]) bool {
	return session == nil || Silence(now, session.Renewed, sessions) > lostAfter
}

// IsForgotten reports whether a session was silent for so long that it can be removed,
// once it has no running attempts.
func IsForgotten(now time.Time, s *store.Session, sessions iter.Seq[*store.Session]) bool {
	return Silence(now, s.Renewed, sessions) > store.SilenceMax
}
