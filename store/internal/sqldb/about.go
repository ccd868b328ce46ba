package sqldb

import (
	"fmt"
	"slices"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// About is the result of a check of a database.
type About struct {
	Server string // name and version of the server
	Schema int    // version of Belfry's schema; 0 if there is none
	// Offset is how far the database's clock is ahead of this machine's clock.
	Offset time.Duration
	// Durable reports whether acknowledged commits survive a crash of the database.
	Durable bool
	// Unusable says why this Belfry cannot use its schema; nil if it can.
	Unusable error
	// Denied are actions that servers need and the user, or any user for now, may not do: each
	// follows "may not".
	Denied []string
}

// Deny adds an action that is not permitted on tables, if there are any.
func (a *About) Deny(what string, tables []string) {
	slices.Sort(tables)
	switch n := len(tables); n {
	case 0:
	case 1:
		a.Denied = append(a.Denied, what+" "+tables[0])
	default:
		a.Denied = append(a.Denied, fmt.Sprintf("%s %s and %d more", what, tables[0], n-1))
	}
}

// String describes the database in a line.
func (a About) String() string {
	schema := fmt.Sprintf("schema version %d", a.Schema)
	if a.Schema == 0 {
		schema = "no schema yet, which belfry serve makes"
	}
	return fmt.Sprintf("%s, %s, its clock is %s ahead of this one", a.Server, schema, job.Duration(a.Offset.Round(time.Millisecond)).InWords())
}
