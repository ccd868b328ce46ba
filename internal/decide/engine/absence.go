package engine

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// absencesMax is the number of absences that a session remembers: occurrences in older ones have
// been settled.
const absencesMax = 8

// Absences returns the known absences of all nodes at the beginning of a session: the absences of the
// other sessions, and the absence that this session ends. A node counts if it plans or runs jobs.
func Absences(joining *store.Session, others []*store.Session, now time.Time) []store.Absence {
	var known []store.Absence
	var seen time.Time
	live := false
	for _, s := range others {
		for _, a := range s.Absences {
			if !slices.Contains(known, a) {
				known = append(known, a)
			}
		}
		if !keepsJobs(s) {
			continue
		}
		seen = lastOf(seen, lastSign(s))
		gone := slices.Contains(joining.Predecessors, s.ID)
		live = live || s.Live(now) && !gone
	}
	if keepsJobs(joining) && !live && !seen.IsZero() && seen.Before(now) {
		known = append(known, store.Absence{From: seen, To: now})
	}
	slices.SortFunc(known, func(a, b store.Absence) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	return known[max(0, len(known)-absencesMax):]
}

// lastSign returns the last sign of life of a node that accepts runs. A stopping node
// renews its session until its runs have ended.
func lastSign(s *store.Session) time.Time {
	if s.Left.IsZero() {
		return s.Renewed
	}
	return s.Left
}

// keepsJobs reports whether the node of a session plans or runs jobs.
func keepsJobs(s *store.Session) bool { return s.Has(store.RolePlanner) || s.Works() }

// RemembersEnd reports whether the row of an ending session stays until it expires: it may be the
// last sign of life before an absence of all nodes. A live session that was not renewed since may
// belong to a dead process.
func RemembersEnd(ending *store.Session, others []*store.Session, now time.Time) bool {
	sign := ending.Left
	if sign.IsZero() {
		sign = now
	}
	return keepsJobs(ending) && !slices.ContainsFunc(others, func(s *store.Session) bool {
		return s.ID != ending.ID && keepsJobs(s) && s.Live(now) && !s.Renewed.Before(sign)
	})
}

// Ended reports whether a session is only a sign of life of a stopped node. over is set if the
// session cannot be renewed.
func Ended(s *store.Session, over bool) bool { return s.Leaving && over }

// SettledByMissed reports whether the missed policy of a job settles an occurrence that was planned
// before an absence of all nodes and fell due in it, and the reason. next is when the following
// occurrence is due.
//
// An occurrence due at most [OnTime] before the first node returned is on time, unless a later one of
// its job had fallen due before that return: a restart of a node is not downtime. Of the other
// occurrences, the policy none runs none, latest only the latest, and all every one.
func SettledByMissed(missed job.Missed, due, next time.Time, absences []store.Absence) (why job.Reason, settled bool) {
	a, ok := absenceAt(due, absences)
	if !ok || missed == job.MissedAll {
		return why, false
	}
	isLatest := next.IsZero() || next.After(a.To)
	if isLatest && (missed == job.MissedLatest || !due.Before(a.To.Add(-OnTime))) {
		return why, false
	}
	return whyMissed(reasonOf(a), missed, 0), true
}

// AbsencesOf returns the absences of all nodes known from sessions.
func AbsencesOf(sessions []store.Session) []store.Absence {
	return absencesOf(func(yield func(*store.Session) bool) {
		for i := range sessions {
			if !yield(&sessions[i]) {
				return
			}
		}
	})
}

// absencesOf returns the absences of all nodes known from sessions. A span within a session's life
// is not an absence: its node could not reach the store.
func absencesOf(sessions iter.Seq[*store.Session]) (list []store.Absence) {
	for s := range sessions {
		for _, a := range s.Absences {
			if !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return slices.DeleteFunc(list, func(a store.Absence) bool {
		for s := range sessions {
			took := s.Left.IsZero() || s.Left.After(a.To) // it took runs after the absence
			if keepsJobs(s) && took && !s.Joined.After(a.From) && s.Renewed.After(a.To) {
				return true
			}
		}
		return false
	})
}

// absences returns the absences of all nodes known from the sessions.
func (b *Batch) absences() []store.Absence {
	if !b.absentKnown {
		b.absent, b.absentKnown = absencesOf(maps.Values(b.allSessions())), true
	}
	return b.absent
}

// onTimeFrom returns the earliest due time that counts as on time, if no later occurrence of its
// job had fallen due when the first node returned: [OnTime] ago, or within [OnTime] after an absence of
// all nodes, [OnTime] before its end.
func onTimeFrom(now time.Time, absences []store.Absence) time.Time {
	from := now.Add(-OnTime)
	a, ok := absenceAt(from, absences)
	if !ok {
		return from
	}
	if fresh := a.To.Add(-OnTime); fresh.After(a.From) {
		return fresh
	}
	return a.From
}

// whyUnplanned explains why occurrences that are due between two moments were not planned
// in time.
func whyUnplanned(first, last time.Time, absences []store.Absence) (why job.Reason) {
	for _, a := range absences {
		switch {
		case a.Has(first) && a.Has(last):
			return reasonOf(a)
		case a.From.Before(last) && first.Before(a.To):
			return reason.Unplanned.Of(reasonOf(a))
		}
	}
	return reason.Unplanned.Of(why)
}

// whyMissed explains why missed occurrences are not caught up.
func whyMissed(why job.Reason, policy job.Missed, limit int) job.Reason {
	switch policy {
	case job.MissedLatest:
		return reason.MissedLatest.Of(why)
	case job.MissedAll:
		return reason.MissedAll.Of(why, limit)
	default:
		return reason.MissedNone.Of(why)
	}
}

// absenceAt returns the absence that contains a moment.
func absenceAt(at time.Time, absences []store.Absence) (store.Absence, bool) {
	for _, a := range absences {
		if a.Has(at) {
			return a, true
		}
	}
	return store.Absence{}, false
}

// unreached returns an outage of the store as the reason why a node is late with runs due between
// two moments, or none.
func unreached(s *store.Session, first, last time.Time) (none job.Reason) {
	if s == nil || s.BeforeGap.IsZero() || last.Before(s.BeforeGap) || !first.Before(s.Steady) {
		return none
	}
	return reason.StoreAway.Of(s.Node, s.BeforeGap.Truncate(time.Second), s.Steady.Truncate(time.Second))
}

// reasonOf names the span of an absence, in whole seconds.
func reasonOf(a store.Absence) job.Reason {
	return reason.NoNodeThere.Of(a.From.Truncate(time.Second), a.To.Truncate(time.Second))
}
