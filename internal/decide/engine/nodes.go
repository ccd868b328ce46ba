package engine

import (
	"bytes"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Rules about the rights of a node, for use outside of a step.

// Belongs reports whether a run belongs to the node, or session, on which it was placed: it
// is bound and was placed. The zero value is no place.
func Belongs[T comparable](bound bool, placed T) bool { return bound && placed != *new(T) }

// MayGoTo reports whether a run that was placed on a node, or session, may go to another one.
func MayGoTo[T comparable](bound bool, placed, other T) bool {
	return !Belongs(bound, placed) || placed == other
}

// JobVersion is the part of a job on which early claims depend.
type JobVersion struct {
	Job     job.ID
	Version int64
	Changed time.Time
	Deleted bool // also set for an unknown job
}

// VersionOf returns the version of a job. j may be nil.
func VersionOf(j *store.Job) JobVersion {
	if j == nil {
		return JobVersion{Deleted: true}
	}
	return JobVersion{j.Definition.UID, j.Definition.Version, j.Definition.Status.Changed, j.Deleted}
}

// Recalls reports whether an unstarted attempt that was claimed under a version of the job is
// released. An attempt that was due at the change counts as started: the response to the change
// names it as running. A flow that has begun keeps its definition.
func (v *JobVersion) Recalls(r *job.Run, claimedUnder int64) bool {
	changed := v.Deleted || claimedUnder != v.Version
	return changed && r.Due.After(v.Changed) && !isStep(r)
}

// BootRuns returns the runs of a job that is due at the start of a process, without their ids:
// one, or one for each shard.
func BootRuns(j *store.Job, session, process job.ID) []store.TriggerItem {
	shards := j.Filled.Place.Shards
	items := make([]store.TriggerItem, max(1, shards))
	for shard := range items {
		items[shard] = store.TriggerItem{
			Job: j.Definition.UID, Kind: job.RunBoot, Key: process.String(), Session: session, Shard: shard, Shards: shards,
		}
	}
	return items
}

// Turn reports whether a live session has its turn for work that one node should do at a time, such
// as reaping. Turns are numbered and rotate among the nodes with direct access to the store,
// planners and nodes with the API: if one is dead or stuck, the next works a turn later. Two nodes
// that disagree for a moment may both work, or neither. The own session counts as live even if it
// is not listed.
func Turn(self job.ID, live []store.Session, number int64) bool {
	keeps := func(s store.Session) bool { return s.Has(store.RolePlanner) || s.Has(store.RoleAPI) }
	keepers := slices.ContainsFunc(live, keeps)
	place, all := int64(0), int64(1)
	for i := range live {
		switch {
		case keepers && !keeps(live[i]):
			if live[i].ID == self {
				return false
			}
			continue
		case live[i].ID == self:
			continue
		case bytes.Compare(live[i].ID[:], self[:]) < 0:
			place++
		}
		all++
	}
	return number%all == place
}
