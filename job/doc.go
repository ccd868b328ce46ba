// Package job defines the nouns of Belfry as plain data: jobs with their schedules and
// policies, calendars and pools, runs and attempts. It reads and writes documents,
// validates them and explains mistakes, fills in defaults, compiles schedules and expands
// templates.
//
// The package has no effects: it reads no clock, starts no goroutine, and uses no store,
// network or file other than its readers.
//
// Documents often have several mistakes, so their errors are of type [Problems], which has
// all mistakes with their positions.
package job
