package job

import "time"

// Calendar is a set of days that schedules refer to by name: holidays, or
// working days.
type Calendar struct {
	Namespace   string            `json:"namespace,omitzero" max:"128" doc:"The namespace of the calendar. Default: default."`
	Name        string            `json:"name" max:"128" doc:"The name by which schedules refer to the calendar. It must not look like a weekday, a date or a time."`
	Description string            `json:"description,omitzero" max:"4096" doc:"What the calendar is for."`
	Labels      map[string]string `json:"labels,omitzero" items:"64" doc:"Labels by which to find and group calendars."`
	Days        Days              `json:"calendar" doc:"The days of the calendar."`
	UID         ID                `json:"uid,omitzero" doc:"Read-only. The identity of the calendar."`
	Version     int64             `json:"version,omitzero" min:"1" doc:"Read-only. Every change of the calendar increments it."`
	Source      *Source           `json:"source,omitzero" doc:"Read-only. The commit of a repository that the calendar is of."`
}

// FullName returns "namespace/name".
func (c *Calendar) FullName() string { return fullName(c.Namespace, c.Name) }

// Days is a set of days: those in Include, and those on Weekdays that are not in Exclude.
// The working days of China, where some Saturdays replace holidays, are Weekdays mon-fri,
// the holidays in Exclude, and the working Saturdays in Include.
type Days struct {
	Include  []string `json:"include,omitzero" items:"10000" max:"32" doc:"Dates or ranges in the calendar regardless of the weekday: 2026-10-01 or 2026-10-01..2026-10-07."`
	Exclude  []string `json:"exclude,omitzero" items:"10000" max:"32" doc:"Dates or ranges that are not in the calendar even if their weekday is."`
	Weekdays []string `json:"weekdays,omitzero" max:"32" doc:"The weekdays that are in the calendar: mon-fri, or a list."`
	// ICS names a file that [InlineCalendars] replaces by its dates.
	ICS []string `json:"ics,omitzero" items:"100" max:"4096" doc:"iCalendar files beside the document. With weekdays their days are excluded, and included where the summary says 班, a working day; without weekdays they are included. The client reads them when it sends the document."`
}

// Pool is a number of slots that jobs share by naming the pool in policy.concurrency_key, and a rate of
// starts for jobs that name it there or in policy.rate_key. An undeclared pool has one slot and no rate.
type Pool struct {
	Namespace   string            `json:"namespace,omitzero" max:"128" doc:"The namespace of the pool. Default: default."`
	Name        string            `json:"name" max:"128" doc:"The name that jobs give as policy.concurrency_key or rate_key."`
	Description string            `json:"description,omitzero" max:"4096" doc:"What the pool is for."`
	Labels      map[string]string `json:"labels,omitzero" items:"64" doc:"Labels by which to find and group pools."`
	Slots       Slots             `json:"pool" doc:"The limits of the pool: size, rate or both."`
	UID         ID                `json:"uid,omitzero" doc:"Read-only. The identity of the pool."`
	Version     int64             `json:"version,omitzero" min:"1" doc:"Read-only. Every change of the pool increments it."`
	Source      *Source           `json:"source,omitzero" doc:"Read-only. The commit of a repository that the pool is of."`
}

// FullName returns "namespace/name".
func (p *Pool) FullName() string { return fullName(p.Namespace, p.Name) }

// Slots are the limits of a pool: of its concurrent runs, and of their starts.
type Slots struct {
	Size   int   `json:"size,omitzero" min:"1" max:"100000" doc:"How many runs may run at a time. Default: any number with a rate, which needs none."`
	PerKey bool  `json:"per_key,omitzero" doc:"The limits are also those of each undeclared pool whose name begins with this one and a dash, dot or underscore, such as customer-42 for the pool customer."`
	Rate   *Rate `json:"rate,omitzero" doc:"How many runs may start in a time. Others wait for their turn, in the order of their due times, or are skipped with overlap skip."`
}

// Rate is how many attempts may start in a time: Limit in each Per, evenly spread, and up to Burst at
// once after a rest.
type Rate struct {
	Limit int      `json:"limit" min:"1" max:"100000" doc:"How many runs may start in the time, evenly spread. Retries count."`
	Per   Duration `json:"per" min:"1s" max:"31d" doc:"The time, such as 1m."`
	Burst int      `json:"burst,omitzero" min:"1" max:"100000" doc:"How many may start at once after a rest. Default: 1."`
}

// Spacing returns the time between two starts.
func (r *Rate) Spacing() time.Duration { return time.Duration(r.Per) / time.Duration(r.Limit) }

// Early returns how much earlier than evenly spread a start may be.
func (r *Rate) Early() time.Duration { return r.Spacing() * time.Duration(max(1, r.Burst)-1) }
