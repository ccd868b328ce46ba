// Package cron computes due times: of cron expressions in three grammars, intervals, single
// instants, and calendars that exclude days or move their occurrences. It reads no clock,
// starts nothing and knows no jobs.
//
//	e, err := cron.Parse("30 2 * * 1-5", cron.In(berlin))
//	next := e.Next(time.Now())
//
// Each of them is a Schedule, with one method, Next. An Expression also has Prev, its
// canonical form, a description in English and Chinese, and notes about the effect of clock
// changes.
//
// # How it works
//
// An expression is compiled to sets of bits (search.go). A search is arithmetic on these
// sets and on days counted from 1970, in civil time, the time on a wall clock, without
// zones. A Zone is a list of stretches of time with one offset (zone.go); the search goes
// through them and applies the rule for times that a change of the clock skips or repeats
// (clock.go). It never calls time.Date, which silently replaces times that do not exist,
// and every search is bounded by the years 1900 to 2199.
//
// Zones come from a table inside this package, not from the machine: a system with another
// version of the time zone database, or none, gives the same answers.
package cron
