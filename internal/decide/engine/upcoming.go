package engine

import (
	"bytes"
	"cmp"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Upcoming is a job and its next due time.
type Upcoming struct {
	Next time.Time
	Job  job.ID
}

// Compare orders by due time, and jobs of the same time by uid, which is the order of
// their creation.
func (u Upcoming) Compare(other Upcoming) int {
	return cmp.Or(u.Next.Compare(other.Next), bytes.Compare(u.Job[:], other.Job[:]))
}
