package sqlite

import (
	"encoding/json"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// memory is what the writer keeps of small tables that each step reads. It
// belongs to the writer, who is the only one that changes them, and is read
// again after something was undone. A nil field is not read yet.
type memory struct {
	hot

	sessions []sessionRow
	// followed are the full names of jobs that others follow.
	followed map[string]bool
	// pools are their sizes by full name.
	pools     map[string]int
	calendars map[string]*job.Calendar

	// unsettled are jobs that began a new epoch or were paused, completed or
	// deleted, whose runs Tidy has to look at.
	unsettled map[job.ID]bool
	// settled is set once all runs were looked at.
	settled bool

	// turns are how far Tidy has come among runs that may stay.
	turns map[line]store.RunRef

	expiry expiry

	spare *step // one that is over
}

func (m *memory) forget() {
	// As after a start: Tidy and Expire look at everything once.
	*m = memory{}
}

// unsettledMax is beyond which it is cheaper to look at all runs.
const unsettledMax = 10_000

// changed notes that the runs of a job may have been withdrawn.
func (m *memory) changed(uid job.ID) {
	if m.settled {
		if m.unsettled == nil {
			m.unsettled = map[job.ID]bool{}
		}
		m.unsettled[uid] = true
		m.settled = len(m.unsettled) < unsettledMax
	}
}

// followed returns the full names of all jobs that others follow.
func (t *tx) followed() (map[string]bool, error) {
	if t.memory.followed == nil {
		followed := map[string]bool{}
		q := t.stmt("select distinct upstream from followers")
		for q.next() {
			followed[q.text()] = true
		}
		if err := q.err(); err != nil {
			return nil, err
		}
		t.memory.followed = followed
	}
	return t.memory.followed, nil
}

// poolSize returns the size of a pool, 0 for one that is not declared.
func (t *tx) poolSize(full string) (int, error) {
	if t.memory.pools == nil {
		list, err := documents[job.Pool](t.conn, job.KindPool)
		if err != nil {
			return 0, err
		}
		t.memory.pools = map[string]int{}
		for _, p := range list {
			t.memory.pools[p.FullName()] = p.Slots.Size
		}
	}
	return t.memory.pools[full], nil
}

// calendars returns all calendars by full name.
func (t *tx) calendars() (map[string]*job.Calendar, error) {
	if t.memory.calendars == nil {
		all, err := readCalendars(t.conn)
		if err != nil {
			return nil, err
		}
		t.memory.calendars = all
	}
	return t.memory.calendars, nil
}

func readCalendars(c *conn) (map[string]*job.Calendar, error) {
	list, err := documents[job.Calendar](c, job.KindCalendar)
	if err != nil {
		return nil, err
	}
	all := make(map[string]*job.Calendar, len(list))
	for _, one := range list {
		all[one.FullName()] = one
	}
	return all, nil
}

// documents returns the calendars or pools by full name.
func documents[T any](c *conn, kind job.Kind) ([]*T, error) {
	var list []*T
	q := c.stmt("select definition from documents where kind = ? order by full").bindText(string(kind))
	for q.next() {
		d := new(T)
		if err := json.Unmarshal(q.view(), d); err != nil {
			q.rewind()
			return nil, err
		}
		list = append(list, d)
	}
	return list, q.err()
}

// sessionRow is a session with what only the store knows about it.
type sessionRow struct {
	store.Session
	over bool // something of it was reaped
}

// sessions returns all sessions by id. They are not to be changed.
func (t *tx) sessions() ([]sessionRow, error) {
	if t.memory.sessions == nil {
		list, err := readSessions(t.conn)
		if err != nil {
			return nil, err
		}
		t.memory.sessions = list
	}
	return t.memory.sessions, nil
}

func readSessions(c *conn) ([]sessionRow, error) {
	drains, err := readDrains(c)
	if err != nil {
		return nil, err
	}
	list := []sessionRow{}
	q := c.stmt("select about, joined, renewed, leaving, reaped, running, ready, clock_ahead from sessions order by id")
	for q.next() {
		var row sessionRow
		if err := json.Unmarshal(q.view(), &row.Session); err != nil {
			q.rewind()
			return nil, err
		}
		row.Joined, row.Renewed, row.Leaving, row.over = q.time(), q.time(), q.bool(), q.bool()
		row.Load = store.Load{Running: int(q.int()), Ready: int(q.int()), ClockAhead: time.Duration(q.int())}
		row.Drain = drains[row.Node]
		list = append(list, row)
	}
	return list, q.err()
}

// readDrains returns the nodes that take no runs.
func readDrains(c *conn) (map[string]*store.Drain, error) {
	drains := map[string]*store.Drain{}
	q := c.stmt("select node, since, by, reason from drains")
	for q.next() {
		drains[q.text()] = &store.Drain{Since: q.time(), By: q.text(), Reason: q.text()}
	}
	return drains, q.err()
}
