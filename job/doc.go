// Package job defines the nouns of Belfry as plain data: jobs with their schedules and
// policies, calendars and pools, runs and attempts. It reads and writes documents,
// validates them and explains mistakes, fills in defaults, compiles schedules and expands
// templates.
//
// It has no effects: it reads no clock, starts no goroutine, and uses no store, network or
// file beyond its readers.
//
// Documents often have several mistakes at once, so errors about them are of type Problems,
// which hold all mistakes with their places.
package job
