package sqldb

import (
	"fmt"
	"time"
)

// About is what a look at a database has found.
type About struct {
	Server string // its name and version
	Schema int    // the version of its schema; 0 while there is none
	// Offset is how far its clock is ahead of that of this machine.
	Offset time.Duration
	// Durable tells whether what is acknowledged survives a crash of it.
	Durable bool
	// Unusable says why this belfry cannot use its schema; nil if it can.
	Unusable error
}

// String says it in a line.
func (a About) String() string {
	schema := fmt.Sprintf("schema version %d", a.Schema)
	if a.Schema == 0 {
		schema = "no schema yet, which belfry serve makes"
	}
	return fmt.Sprintf("%s, %s, its clock is %s ahead of this one", a.Server, schema, a.Offset.Round(time.Millisecond))
}
