package engine

import (
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/job"
)

// Shards are the numbers of some shards of an occurrence, as readable text for a store:
// "0,3". A run that is not split has none.
type Shards string

// with returns the shards plus the shard of a run.
func (s Shards) with(r *job.Run) Shards {
	n := strconv.Itoa(r.Shard)
	switch {
	case r.Shards == 0 || slices.Contains(strings.Split(string(s), ","), n):
		return s
	case s == "":
		return Shards(n)
	}
	return s + Shards(","+n)
}

// without returns the shards minus the shard of a run, or none for a run without shards, which does
// the work of all.
func (s Shards) without(r *job.Run) Shards {
	if r.Shards == 0 {
		return ""
	}
	n := strconv.Itoa(r.Shard)
	rest := slices.DeleteFunc(strings.Split(string(s), ","), func(shard string) bool { return shard == n })
	return Shards(strings.Join(rest, ","))
}
