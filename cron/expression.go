package cron

import (
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Expression is a compiled cron expression in a zone, with a rule for clock changes. It
// is immutable and safe for concurrent use.
type Expression struct {
	fields
	zone        *Zone // never nil
	clockChange ClockChange
	dialect     Dialect
}

// Dialect is a grammar of expressions.
type Dialect uint8

// The grammars. They differ in syntax and in the numbers of weekdays, not in the compiled
// form.
const (
	// Default has 5 fields, 6 with seconds first or 7 with a year last, and the extensions of the
	// other grammars.
	Default Dialect = iota
	// Vixie5 is the grammar of cronie, the cron of most Linux systems.
	Vixie5
	// Quartz is the grammar of the Java scheduler: 6 or 7 fields, a "?" in one of the day
	// fields, weekdays from 1 for Sunday.
	Quartz
)

var dialectNames = [...]string{Default: "default", Vixie5: "vixie5", Quartz: "quartz"}

// String returns the name of the dialect, as [ParseDialect] takes it.
func (d Dialect) String() string { return nameOf(dialectNames[:], uint8(d)) }

// ParseDialect returns the dialect of a name: default, vixie5 or quartz.
func ParseDialect(name string) (Dialect, error) {
	i, err := indexOfName(phrase.Dialect, dialectNames[:], name)
	return Dialect(i), err
}

// Option changes how [Parse] reads an expression.
type Option func(*options)

type options struct {
	zone        *Zone
	dialect     Dialect
	clockChange ClockChange
	job         string // namespace/name
}

// In sets the zone of the expression. Default, also for nil: UTC.
func In(zone *Zone) Option { return func(o *options) { o.zone = zone } }

// WithDialect sets the grammar of the expression. Without it, the grammar is [Default].
func WithDialect(d Dialect) Option { return func(o *options) { o.dialect = d } }

// WithClockChange sets the treatment of clock changes. Default: Vixie.
func WithClockChange(c ClockChange) Option { return func(o *options) { o.clockChange = c } }

// WithJob names the job, from which the values of H and ~ are drawn. Without it they are
// refused.
func WithJob(namespace, name string) Option {
	return func(o *options) { o.job = namespace + "/" + name }
}

// Next returns the first occurrence strictly after t, in the zone of the expression; or the
// zero time if none is before the year 2200. It allocates nothing.
func (e *Expression) Next(t time.Time) time.Time {
	u, ok := e.onOrAfterInstant(secondsOf(t) + 1)
	if !ok {
		return time.Time{}
	}
	return time.Unix(u, 0).In(e.zone.location)
}

// Prev returns the last occurrence strictly before t, in the zone of the expression; or the
// zero time if none is after the year 1899. It allocates nothing.
func (e *Expression) Prev(t time.Time) time.Time {
	u := secondsOf(t)
	if t.Nanosecond() == 0 {
		u--
	}
	u, ok := e.onOrBeforeInstant(u)
	if !ok {
		return time.Time{}
	}
	return time.Unix(u, 0).In(e.zone.location)
}

// Zone returns the zone of the expression.
func (e *Expression) Zone() *Zone { return e.zone }

// ClockChange returns the treatment of clock changes.
func (e *Expression) ClockChange() ClockChange { return e.clockChange }

// Dialect returns the grammar that the expression was written in.
func (e *Expression) Dialect() Dialect { return e.dialect }

// Equal reports whether two expressions have the same occurrences by construction: the
// same sets, zone and rule for clock changes. Their grammars may differ.
func (e *Expression) Equal(other *Expression) bool {
	return e.fields == other.fields && e.clockChange == other.clockChange &&
		(e.zone == other.zone || e.zone.Name() == other.zone.Name())
}
