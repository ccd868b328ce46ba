package engine

import (
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// The floor of a job keeps a new epoch from planning claimed or settled occurrences again. An early
// claim raises it before its instant: until then, the release of an unstarted run returns the
// instant to the new epoch or the next claim.

// noFloor is the floor before the first claim of a job: zero in a run means that its claim has not
// raised the floor, or that an older program claimed it.
var noFloor = time.UnixMicro(1).UTC()

// sealed is how far the floor is after the instant of a claimed run whose release must not lower
// it: the precision of all stores.
const sealed = time.Microsecond

// floorBefore returns the floor as a run stores it.
func (j *Job) floorBefore() time.Time {
	if j.Floor.IsZero() {
		return noFloor
	}
	return j.Floor
}

// rememberFloor records in a claimed run the floor after its release.
func (b *Batch) rememberFloor(j *Job, m *member) {
	if m.Kind != job.RunScheduled {
		return
	}
	if m.Scheduled.After(j.Floor) {
		m.FloorBefore = j.floorBefore()
	} else if later := b.claimOver(&m.Run); later != nil {
		m.FloorBefore = later.FloorBefore
	}
}

// raiseFloor records that a scheduled time was claimed or settled. The release of a later claimed
// run lowers the floor no further than that. If these runs are not known, because all are due, no
// release lowers it; they count as unstarted again if the clock is set back.
func (b *Batch) raiseFloor(j *Job, r *store.Run) {
	if r.Kind != job.RunScheduled || j.Deleted {
		return
	}
	if r.Scheduled.After(j.Floor) {
		j.Floor = r.Scheduled
		b.saveJob(j)
	} else if later := b.claimOver(r); later != nil {
		later.FloorBefore = r.Scheduled
		b.save(later)
	} else if r.Attempt == 1 && r.Shards == 0 && r.Scheduled.Before(j.Floor) && !b.knowsWaiting(j.UID) {
		j.Floor = j.Floor.Add(sealed)
		b.saveJob(j)
	}
}

// claimOver returns another claimed run whose release would lower the floor below a run's scheduled
// time, or nil; the given run may be of an earlier epoch. Runs claimed outside the batch must be loaded
// if wantsClaims.
func (b *Batch) claimOver(r *store.Run) *member {
	for _, m := range b.byJob[r.JobUID] {
		if !m.removed && m.State == job.StateRunning && m.ID != r.ID && m.Shards == 0 && !m.FloorBefore.IsZero() && m.FloorBefore.Before(r.Scheduled) && !m.Scheduled.Before(r.Scheduled) {
			return m
		}
	}
	return nil
}

// wantsClaims reports whether a decision about a run must know the claimed runs of its job: a
// later one may have raised the floor without having started.
func (j *Job) wantsClaims(r *store.Run, now time.Time) bool {
	if r.Shards > 0 && r.Scheduled.Equal(j.Floor) {
		return false // another shard has raised it
	}
	return r.Kind == job.RunScheduled && !r.Scheduled.After(j.Floor) && j.mayHaveUnstarted(now)
}

// mayHaveUnstarted reports whether the run that raised the floor may be claimed and not
// due.
func (j *Job) mayHaveUnstarted(now time.Time) bool { return j.Floor.Add(j.Policy.PutOff).After(now) }

// WantsRuns reports whether a change of a job to a policy must read all its unfinished runs:
// its policies count or time them, or some may be claimed and unstarted.
func (j *Job) WantsRuns(policy *Policy, now time.Time) bool {
	was := j.Policy
	return was.NeedsPrevious || policy.NeedsPrevious || was.MaxRuns > 0 || policy.MaxRuns > 0 || was.LateBy != policy.LateBy ||
		j.mayHaveUnstarted(now)
}

// restoreFloor returns the instant of a claimed and unstarted attempt. A split occurrence
// keeps its instant, because other runs of it may have started.
func (b *Batch) restoreFloor(j *Job, m *member) {
	before := m.FloorBefore
	m.FloorBefore = time.Time{}
	if before.IsZero() || m.Kind != job.RunScheduled || m.Shards > 0 || m.Attempt > 1 {
		return
	}
	if j.Floor.Equal(m.Scheduled) {
		j.Floor = before
		b.saveJob(j)
		return
	}
	for _, later := range b.byJob[m.JobUID] {
		if !later.removed && later.State == job.StateRunning && later.FloorBefore.Equal(m.Scheduled) {
			later.FloorBefore = before
			b.save(later)
		}
	}
}

// unstarted returns the claimed runs of a job that have not started because they are not due, by
// their scheduled times, and the floor without them. A claim in the future means that the clock was
// set back: the run may have started.
func (b *Batch) unstarted(j *Job) (claims map[int64]*member, floor time.Time) {
	for _, m := range b.waiting(j.UID) {
		if !m.removed && m.State == job.StateRunning && m.Kind == job.RunScheduled && m.Shards == 0 && m.Attempt == 1 &&
			m.Due.After(b.now) && !m.Claimed.After(b.now) {
			if claims == nil {
				claims = map[int64]*member{}
			}
			claims[m.Scheduled.UnixNano()] = m
		}
	}
	floor = j.Floor
	for m := claims[floor.UnixNano()]; m != nil && !m.FloorBefore.IsZero() && m.FloorBefore.Before(floor); m = claims[floor.UnixNano()] {
		floor = m.FloorBefore
	}
	return claims, floor
}

// sharedMax bounds the instants that an edit examines below the floor: more than fall due
// within the time of early claims.
const sharedMax = 1000

// takeOver returns the cursor of an epoch that begins at a moment. Claimed, unstarted occurrences
// of both schedules pass into the new epoch: each runs once, as claimed or, after a release, under
// the new definition. Earlier occurrences of the new schedule are planned here, since the cursor
// passes them. The cursor never moves back before a settled or possibly started occurrence, so that
// each runs once.
func (b *Batch) takeOver(j *Job, from time.Time, timing *Timing) time.Time {
	if timing == nil || !j.Floor.After(from) {
		return lastOf(from, j.Floor)
	}
	claims, settled := b.unstarted(j)
	if !timing.Planned || len(claims) == 0 {
		return lastOf(from, j.Floor)
	}
	cursor := lastOf(from, settled)
	var between []Occurrence
	looked := 0
	for next := timing.Schedule.Next(cursor); !next.IsZero() && !next.After(j.Floor); looked++ {
		following := timing.Schedule.Next(next)
		o := Occurrence{Scheduled: next, Due: timing.due(next, following)}
		if !following.IsZero() {
			o.NextDue = timing.dueAt(following)
		}
		if looked == sharedMax {
			return lastOf(from, j.Floor)
		}
		if m := claims[next.UnixNano()]; m == nil || j.Policy.Shards > 0 || j.Policy.Broadcast {
			between = append(between, o)
		} else {
			for _, o := range between {
				b.spawn(j, store.Run{Run: job.Run{Kind: job.RunScheduled, Key: KeyOf(o.Scheduled), Scheduled: o.Scheduled, Due: o.Due}, NextDue: o.NextDue})
				j.Planned++
			}
			between = nil
			if isCounted(&m.Run) { // planned by the previous schedule
				m.Others = ""
				j.Planned++
			}
			m.Epoch, m.Due, m.NextDue = j.Epoch, o.Due, o.NextDue
			b.save(m)
			cursor = next
		}
		next = following
	}
	return cursor
}

func lastOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
