package sqlite

import "github.com/belfry-cron/belfry/job"

// Ended returns how many runs have ended so since the store was opened, those too
// that have never started. It counts what is on disk.
func (s *Store) Ended(outcome job.Outcome) int64 { return s.ended.Of(outcome) }
