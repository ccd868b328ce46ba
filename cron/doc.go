// Package cron computes the due times of cron expressions in three grammars, of intervals
// and of single instants, with calendars that exclude days or move their occurrences. It
// reads no clock, starts no goroutine and knows no jobs.
//
//	e, err := cron.Parse("30 2 * * 1-5", cron.In(berlin))
//	next := e.Next(time.Now())
//
// Each of them is a [Schedule], with one method, Next. An [Expression] also has Prev, a
// canonical form, a description in English and Chinese, and notes on the effect of clock
// changes.
//
// # How it works
//
// An expression is compiled to bit sets (search.go). A search is arithmetic on these sets
// and on days counted from 1970, in civil time: the time on a wall clock, without zones.
// A [Zone] is a list of periods with a constant offset (zone.go); the search visits them
// and applies the rule for times that a clock change skips or repeats (clock.go). It
// never calls time.Date, which silently replaces times that do not exist, and every
// search is bounded by the years 1900 to 2199.
//
// Zones come from a table inside this package, not from the machine, so every system
// returns the same times, whatever its version of the time zone database.
package cron
