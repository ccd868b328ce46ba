// Package cron says when things fall due: cron expressions in three grammars,
// intervals, single instants, and calendars that leave days out or move what is
// due on them. It reads no clock, starts nothing and knows no jobs.
//
//	e, err := cron.Parse("30 2 * * 1-5", cron.In(berlin))
//	next := e.Next(time.Now())
//
// Everything that says when is a Schedule: one method, Next. An Expression has
// more: Prev, its canonical form, a description in English and Chinese, and
// notes about what changes of the clock do to it.
//
// # How it works
//
// An expression is compiled to sets of bits (search.go). A search is arithmetic
// on these sets and on days counted from 1970, in civil time, which is what a
// clock on the wall shows and knows no zones. A Zone is a list of stretches of
// time with one offset (zone.go); the search goes through them and applies the
// rule for what a change of the clock skips or repeats (clock.go). Nothing is
// ever asked of time.Date, whose answers for times that do not exist are made up,
// and every search is bounded by the years 1900 to 2199.
//
// Zones come from a table inside this package, not from the machine: a system
// with another version of the time zone database, or none, gives the same
// answers.
package cron
