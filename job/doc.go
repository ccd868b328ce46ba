// Package job has the nouns of Belfry as plain data: jobs with their schedules
// and policies, calendars and pools, and what becomes of them, runs and
// attempts. It reads and writes them as documents, checks them and explains
// what is wrong, fills in defaults, compiles schedules and expands templates.
//
// It does nothing with them: it reads no clock, starts no goroutine, and
// touches no store, network or file beyond the readers that it is given.
//
// What users write is wrong in many ways at once, so that errors about
// documents are of type Problems, which hold all of them with their places.
package job
