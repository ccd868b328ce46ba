package engine

import (
	"bytes"
	"cmp"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// Upcoming is a job and the moment at which it falls due next.
type Upcoming struct {
	Next time.Time
	Job  job.ID
}

// Compare orders by moment, and jobs of one moment by uid, which is the order of their
// creation.
func (u Upcoming) Compare(other Upcoming) int {
	return cmp.Or(u.Next.Compare(other.Next), bytes.Compare(u.Job[:], other.Job[:]))
}
