package storecopy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// CheckOptions are how a store is checked.
type CheckOptions struct {
	// Fix mends what can be mended.
	Fix bool
	// Progress is called after each batch. May be nil.
	Progress func(stage string, done int)
}

// Checked is the scope and the findings of a check.
type Checked struct {
	Jobs, Runs, Audit, Attempts int
	Damage                      []engine.Damage // at most damageMax of it
}

// Left returns the number of unmended findings.
func (c *Checked) Left() (n int) {
	for i := range c.Damage {
		if !c.Damage[i].Mended {
			n++
		}
	}
	return n
}

// checking is a check in progress.
type checking struct {
	Checked
	s     Store
	o     CheckOptions
	since int64             // position in the feed
	names map[job.ID]string // names of undeleted jobs
}

// Check searches a store for damage. Nodes may use it at the same time.
func Check(ctx context.Context, s Store, o CheckOptions) (Checked, error) {
	if o.Progress == nil {
		o.Progress = func(string, int) {}
	}
	c := &checking{s: s, o: o, names: map[job.ID]string{}}
	if k, ok := s.(keyReader); ok {
		damage, err := k.MendKeys(ctx, o.Fix)
		if c.found(damage...); err != nil || c.Left() > 0 {
			return c.Checked, err // the rest cannot be read
		}
	}
	for _, look := range []func(context.Context) error{c.jobs, c.listed, c.runs, c.audit, c.history} {
		if err := look(ctx); err != nil {
			return c.Checked, err
		}
	}
	return c.Checked, nil
}

// keyReader is a store of keys that belong together: it refuses all steps while any is missing or cannot
// be read.
type keyReader interface {
	MendKeys(ctx context.Context, fix bool) ([]engine.Damage, error)
}

// damageMax bounds the reported damage: a store with more should be restored.
const damageMax = 1000

func (c *checking) found(list ...engine.Damage) {
	c.Damage = append(c.Damage, list[:min(len(list), damageMax-len(c.Damage))]...)
}

// rewriteMend is how the feed and the revisions are mended.
const rewriteMend = "write a new version of it that says the same"

// jobs reads the planners' feed: it has all jobs, whatever their names lead to.
func (c *checking) jobs(ctx context.Context) error {
	for {
		list, next, err := c.s.JobsChanged(ctx, store.AllPartitions, c.since, jobsPage)
		if err != nil {
			return err
		}
		if err := c.planned(ctx, slices.DeleteFunc(list, func(p store.PlannedJob) bool { return p.Deleted })); err != nil {
			return err
		}
		if next <= c.since {
			return nil
		}
		c.since = next
		c.o.Progress("jobs", c.Jobs)
	}
}

// planned checks jobs as planners read them.
func (c *checking) planned(ctx context.Context, list []store.PlannedJob) error {
	uids := make([]job.ID, len(list))
	for i := range list {
		uids[i] = list[i].UID
	}
	inspect := engine.Inspect{Jobs: uids, Fix: c.o.Fix}
	survey := engine.Survey{Jobs: uids}
	if err := c.s.Operate(ctx, &survey); err != nil {
		return err
	}
	if err := c.s.Operate(ctx, &inspect); err != nil {
		return err
	}
	c.found(inspect.Found...)
	cells := map[job.ID]*engine.Job{}
	for i := range survey.Cells {
		cells[survey.Cells[i].Job.UID] = &survey.Cells[i].Job
	}
	for i := range list {
		j := cells[list[i].UID]
		if j == nil || j.Deleted {
			continue // since the page was read
		}
		if c.names[j.UID] == "" {
			c.Jobs++
		}
		c.names[j.UID] = j.FullName()
		if err := c.latest(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// latest compares the version of a job with its latest revision.
func (c *checking) latest(ctx context.Context, j *engine.Job) error {
	list, err := c.s.Revisions(ctx, j.UID, 0, 1)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	d := engine.Damage{Check: engine.CheckVersions, Object: "job " + j.FullName(), Mend: rewriteMend}
	switch {
	case len(list) == 0:
		d.Found = fmt.Sprintf("it has version %d, and no revision is kept", j.Version)
	case list[0].Version < j.Version:
		d.Found = fmt.Sprintf("it has version %d, and the latest revision is %d", j.Version, list[0].Version)
	default:
		return nil
	}
	if c.o.Fix {
		if err := c.s.Operate(ctx, &engine.Rewrite{Jobs: []job.ID{j.UID}}); err != nil {
			return err
		}
		d.Mended = true
	}
	c.found(d)
	return nil
}

// listed searches for named jobs that are missing from the feed.
func (c *checking) listed(ctx context.Context) error {
	return eachJob(ctx, c.s, func(list []*store.Job) error {
		if !slices.ContainsFunc(list, c.unknown) {
			return nil
		}
		if err := c.jobs(ctx); err != nil { // jobs created since
			return err
		}
		for _, j := range list {
			if !c.unknown(j) {
				continue
			}
			d := engine.Damage{Check: engine.CheckFeed, Object: "job " + j.Definition.FullName(), Found: "planners are not notified of it", Mend: rewriteMend}
			if c.o.Fix {
				if err := c.s.Operate(ctx, &engine.Rewrite{Jobs: []job.ID{j.Definition.UID}}); err != nil {
					return err
				}
				if err := c.jobs(ctx); err != nil {
					return err
				}
				d.Mended = !c.unknown(j)
			}
			c.names[j.Definition.UID] = j.Definition.FullName()
			c.found(d)
		}
		return nil
	})
}

func (c *checking) unknown(j *store.Job) bool { return c.names[j.Definition.UID] == "" }

// runs finds runs whose jobs do not exist.
func (c *checking) runs(ctx context.Context) error {
	return eachRun(ctx, c.s, func(list []store.Run) error {
		c.Runs += len(list)
		c.o.Progress("unfinished runs", c.Runs)
		var refs []engine.RunRef
		for i := range list {
			if r := &list[i]; c.names[r.JobUID] == "" {
				refs = append(refs, engine.RunRef{Run: r.ID, Job: r.JobUID})
			}
		}
		if len(refs) == 0 {
			return nil
		}
		inspect := engine.Inspect{Runs: refs, Fix: c.o.Fix}
		err := c.s.Operate(ctx, &inspect)
		c.found(inspect.Found...)
		return err
	})
}

// audit searches for missing numbers.
func (c *checking) audit(ctx context.Context) error {
	first, last, err := auditSpan(ctx, c.s)
	if err != nil || last == 0 {
		return err
	}
	next := first
	return eachAudit(ctx, c.s, first, func(list []store.AuditRecord) error {
		for i := range list {
			if c.Audit++; list[i].Seq > next {
				c.found(engine.Damage{Check: engine.CheckAudit, Object: fmt.Sprintf("record %d", next), Found: fmt.Sprintf("%s before record %d are missing", plural(int(list[i].Seq-next), "record"), list[i].Seq)})
			}
			next = list[i].Seq + 1
		}
		c.o.Progress("audit", c.Audit)
		return nil
	})
}

// history searches for records with a wrong name of their job.
func (c *checking) history(ctx context.Context) error {
	seen := map[job.ID]bool{}
	s := &stream{s: c.s}
	for {
		r, err := s.next(ctx)
		if err != nil || r == nil {
			return err
		}
		if c.Attempts++; c.Attempts%historyPage == 0 {
			c.o.Progress("history", c.Attempts)
		}
		full, name := c.names[r.Run.JobUID], r.Run.Namespace+"/"+r.Run.Name
		if full != "" && full != name && !seen[r.Run.JobUID] {
			seen[r.Run.JobUID] = true
			c.found(engine.Damage{Check: engine.CheckHistory, Object: "job " + full, Found: fmt.Sprintf("history calls it %q", name)})
		}
	}
}
