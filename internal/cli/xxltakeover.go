package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/cli/xxlmysql"
	"github.com/belfry-cron/belfry/internal/cli/xxltables"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
)

// wheelTime is how long the old admins may still send runs that they have read: they read 5 s
// ahead.
const wheelTime = 6 * time.Second

// changeFlags are the flags of the commands that change over a group.
type changeFlags struct {
	connection  config.Asked
	from, group string
	yes, skip   bool
}

func newXXLTakeOver(env Env) *cobra.Command {
	return newXXLChange(env, &cobra.Command{
		Use:   "take-over --group APPNAME --from URL [flags]",
		Short: "Stop the jobs of a group in an xxl-job-admin, and resume them here",
		Long: `Stop the started jobs of a group in the old admin, wait 6 seconds until it has sent
what it had read, and resume the imported jobs, with all occurrences that fell due in
between: none is left out and none runs twice.

Before that, import the jobs, and point the executors of the group at Belfry with
xxl.forward set. The command can be repeated, even after it was interrupted. Jobs that
cannot be imported stay with the old admin; the command names those that are started.`,
		Example: "belfry xxl take-over --group order-service --from mysql://root@db:3306/xxl_job",
		Args:    noArguments,
	}, takeOver, func(f *pflag.FlagSet, ask *changeFlags) {
		f.BoolVar(&ask.skip, "skip-errors", false, "leave started jobs that are not imported yet with the old admin as well")
	})
}

func newXXLGiveBack(env Env) *cobra.Command {
	return newXXLChange(env, &cobra.Command{
		Use:   "give-back --group APPNAME --from URL [flags]",
		Short: "Pause the jobs of a group here, and start them in the xxl-job-admin again",
		Long: `Pause the jobs of a group that belfry xxl take-over has taken over, and start them in the
old admin with the first occurrence that Belfry has not run. Jobs that were stopped
there before stay stopped. The command can be repeated, works after a take-over that was
interrupted, and needs no executor that is registered with Belfry.`,
		Example: "belfry xxl give-back --group order-service --from mysql://root@db:3306/xxl_job",
		Args:    noArguments,
	}, giveBack)
}

func newXXLChange(env Env, cmd *cobra.Command, change func(context.Context, *changeOver) error, more ...func(*pflag.FlagSet, *changeFlags)) *cobra.Command {
	var ask changeFlags
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return changeGroup(cmd.Context(), env, ask, change) }
	f := cmd.Flags()
	addWord(f, &ask.group, "group", "", "APPNAME", "group of executors, as the old admin has it")
	addWord(f, &ask.from, "from", "", "URL", "database of the old admin: mysql://user:password@host:3306/xxl_job; MYSQL_PWD may have the password")
	f.BoolVarP(&ask.yes, "yes", "y", false, "change over without asking")
	for _, add := range more {
		add(f, &ask)
	}
	addServer(cmd, &ask.connection)
	return cmd
}

// changeOver is a group that moves from one admin to the other.
type changeOver struct {
	env    Env
	ask    changeFlags
	server *remote
	db     *xxlmysql.DB
	plan   *xxltables.Plan
	// hasExecutors is whether executors of the group are registered with Belfry.
	hasExecutors bool
}

func changeGroup(ctx context.Context, env Env, ask changeFlags, change func(context.Context, *changeOver) error) error {
	switch {
	case ask.group == "":
		return misused("--group is missing: the appname of the executors")
	case ask.from == "":
		return misused("--from is missing: mysql://user:password@host:3306/xxl_job")
	}
	server, err := connect(env, ask.connection)
	if err != nil {
		return err
	}
	executors, err := server.Executors(ctx)
	if err != nil {
		return server.refused(err)
	}
	// It needs the same rights as the rest, so that a lack shows before anything is stopped.
	if _, err := server.RaiseNumbers(ctx, 1); err != nil {
		return server.refused(err)
	}
	db, err := openOldAdmin(ctx, env, ask.from)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // its changes are committed
	c := &changeOver{env: env, ask: ask, server: server, db: db}
	c.hasExecutors = slices.ContainsFunc(executors.Items, func(e client.Executor) bool { return e.Group == ask.group })
	if err := c.read(ctx); err != nil {
		return server.refused(err)
	}
	return server.refused(change(ctx, c))
}

// read makes the plan from the old admin's data.
func (c *changeOver) read(ctx context.Context) error {
	tables, err := c.db.Tables(ctx, "")
	if err != nil {
		return err
	}
	admin, err := xxltables.Read(tables, time.UTC, time.Time{})
	if err != nil {
		return err
	}
	// Names do not depend on the zone.
	if c.plan, err = xxltables.Convert(admin, xxltables.Options{Zone: "UTC", Now: c.env.Now()}); err != nil {
		return err
	}
	if !slices.ContainsFunc(admin.Groups, func(g xxltables.Group) bool { return g.AppName == c.ask.group }) {
		var names []string
		for _, g := range admin.Groups {
			names = append(names, g.AppName)
		}
		return failed("the old admin has no group %s", c.ask.group).withHint("it has %s", strings.Join(names, ", "))
	}
	return nil
}

// imported returns the jobs of the group in Belfry, by their numbers in the old admin, and names
// the started ones that stay there.
func (c *changeOver) imported(ctx context.Context) (map[int64]*job.Job, error) {
	jobs := map[int64]*job.Job{}
	var missing, refused []string
	for i := range c.plan.Jobs {
		p := &c.plan.Jobs[i]
		if p.Group != c.ask.group {
			continue
		}
		if p.Job == nil {
			if p.Old.IsOn {
				refused = append(refused, fmt.Sprintf("%s: %s", p.Title(), p.Problem))
			}
			continue
		}
		is, err := jobOf(ctx, c.server, p.Job.Namespace, p.Job.Name)
		switch {
		case err == nil:
			jobs[p.Old.ID] = is
		case !client.IsType(err, client.TypeNotFound):
			return nil, err
		case p.Old.IsOn:
			missing = append(missing, p.Title())
		}
	}
	if len(missing) > 0 && !c.ask.skip {
		return nil, failed("%s of the group %s not in Belfry: %s", counted(len(missing), "job"), c.ask.group, strings.Join(missing, "; ")).
			withHint("belfry xxl import --apply brings them; --skip-errors leaves them with the old admin")
	}
	for _, one := range missing {
		c.env.tell("warning: job %s is not in Belfry, and stays with the old admin\n", one)
	}
	for _, one := range refused {
		c.env.tell("warning: job %s; it cannot be imported, and stays with the old admin\n", one)
	}
	return jobs, nil
}

// taken returns the jobs in Belfry that came from jobs of the group, by their numbers in the old
// admin. It uses the number in the job, not its name, which depends on the handler in the old
// admin.
func (c *changeOver) taken(ctx context.Context) (map[int64][]*job.Job, error) {
	jobs := map[int64][]*job.Job{}
	for q := (client.JobQuery{Work: job.WorkXXL, PageSize: pageSize}); ; {
		page, err := c.server.Jobs(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, d := range page.Items {
			read, err := c.server.read(d, job.KindJob)
			if err != nil {
				return nil, err
			}
			if j := read.Job; j.Run.XXL.Group == c.ask.group && j.Labels[xxltables.StatusLabel] != "" {
				jobs[int64(j.Run.XXL.ID)] = append(jobs[int64(j.Run.XXL.ID)], j)
			}
		}
		if q.PageToken = page.NextPageToken; q.PageToken == "" {
			return jobs, nil
		}
	}
}

func takeOver(ctx context.Context, c *changeOver) error {
	jobs, err := c.imported(ctx)
	if err != nil {
		return err
	}
	if !c.hasExecutors && len(jobs) > 0 {
		return failed("no executor of the group %s is registered with Belfry", c.ask.group).withHint("point xxl.job.admin.addresses of its executors at Belfry first")
	}
	if err := agree(c.env, c.ask.yes, "stop the jobs of the group %s in the old admin and resume them in Belfry", c.ask.group); err != nil {
		return err
	}
	if _, err := c.server.RaiseNumbers(ctx, c.plan.FirstNumber); err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(jobs))
	stopped, err := c.db.Stop(ctx, c.ask.group, ids)
	if err != nil {
		return err
	}
	c.env.tell("%s stopped in the old admin; waiting %s for what it still sends\n", counted(len(stopped), "job"), wheelTime)
	select {
	case <-ctx.Done():
		return failed("interrupted: the jobs are stopped in the old admin and paused in Belfry").withHint("repeat the command, or belfry xxl give-back")
	case <-time.After(wheelTime):
	}
	resumed := 0
	for _, one := range stopped {
		is := jobs[one.ID]
		if !is.Paused {
			continue
		}
		if err := c.resumeAt(ctx, is, one.Next); err != nil {
			return err
		}
		resumed++
	}
	for _, id := range ids {
		if is := jobs[id]; is.Paused && is.Labels[xxltables.StatusLabel] == xxltables.StatusChild {
			if _, err := c.server.Resume(ctx, is.Namespace, is.Name, client.ResumeRequest{}); err != nil {
				return err
			}
			resumed++
		}
	}
	c.warnOfOthers(jobs)
	return write(c.env, fmt.Appendf(nil, "group %s is taken over: %s resumed\n", c.ask.group, counted(resumed, "job")))
}

// resumeAt resumes a job with all occurrences due since a moment.
func (c *changeOver) resumeAt(ctx context.Context, is *job.Job, next time.Time) error {
	s := &is.Schedule
	if (len(s.Cron) > 0 || s.Every != 0) && !s.Start.Equal(next) {
		version := is.Version
		s.Start = next.UTC()
		if s.Every != 0 {
			s.Align = job.AlignStart
		}
		d, err := client.DocumentOf(job.Document{Kind: job.KindJob, Job: is}.Bare())
		if err != nil {
			return err
		}
		if _, err := c.server.PutJob(ctx, is.Namespace, is.Name, d, version); err != nil {
			return err
		}
	}
	_, err := c.server.Resume(ctx, is.Namespace, is.Name, client.ResumeRequest{Missed: job.MissedAll})
	return err
}

// warnOfOthers names jobs of other groups that follow jobs of this one, and still have a schedule
// in the old admin: one group moves at a time.
func (c *changeOver) warnOfOthers(jobs map[int64]*job.Job) {
	for i := range c.plan.Jobs {
		p := &c.plan.Jobs[i]
		if p.Job == nil || p.Group == c.ask.group {
			continue
		}
		for _, up := range p.Job.Schedule.On {
			for _, is := range jobs {
				if is.FullName() == up.Job {
					c.env.tell("warning: job %s of the group %s follows %s: take over its group as well\n", p.Job.FullName(), p.Group, up.Job)
				}
			}
		}
	}
}

func giveBack(ctx context.Context, c *changeOver) error {
	jobs, err := c.taken(ctx)
	if err != nil {
		return err
	}
	stopped, err := c.db.Stopped(ctx, c.ask.group)
	if err != nil {
		return err
	}
	if !c.hasExecutors {
		c.env.tell("warning: no executor of the group %s is registered with Belfry: see that its executors are registered with the old admin, which sends their runs from now on\n", c.ask.group)
	}
	if err := agree(c.env, c.ask.yes, "pause the jobs of the group %s in Belfry and start them in the old admin", c.ask.group); err != nil {
		return err
	}
	paused := 0
	var ended []int64 // no occurrence is left: the old admin would repeat a run
	for i := range stopped {
		next, over := stopped[i].Next, len(jobs[stopped[i].ID]) > 0
		for _, is := range jobs[stopped[i].ID] {
			after, err := c.pauseFor(ctx, is, stopped[i].Next)
			if err != nil {
				return err
			}
			if over = over && after.IsZero(); after.After(next) {
				next = after
			}
			paused++
		}
		if stopped[i].Next = next; over {
			ended = append(ended, stopped[i].ID)
		}
	}
	stopped = slices.DeleteFunc(stopped, func(s xxlmysql.Stopped) bool { return slices.Contains(ended, s.ID) })
	for _, id := range ended {
		c.env.tell("job %d stays stopped in the old admin: its schedule has ended, and Belfry has run the last of it\n", id)
	}
	if err := c.db.Start(ctx, stopped); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		for _, is := range jobs[id] {
			if is.Paused || is.Labels[xxltables.StatusLabel] != xxltables.StatusChild {
				continue
			}
			if _, err := c.server.Pause(ctx, is.Namespace, is.Name, client.PauseRequest{Reason: givenBack}); err != nil {
				return err
			}
			paused++
		}
	}
	return write(c.env, fmt.Appendf(nil, "group %s is given back: %s paused, %d started in the old admin\n", c.ask.group, counted(paused, "job"), len(stopped)))
}

// givenBack is the reason of the pause.
const givenBack = "given back to the old admin"

// pauseFor pauses a job, and returns when the old admin has to send it first: the first occurrence
// since the take-over that Belfry has not settled; zero if none is left.
func (c *changeOver) pauseFor(ctx context.Context, is *job.Job, began time.Time) (time.Time, error) {
	paused := c.env.Now()
	if !is.Paused {
		if _, err := c.server.Pause(ctx, is.Namespace, is.Name, client.PauseRequest{Reason: givenBack}); err != nil {
			return began, err
		}
	}
	settled, ahead, err := c.settled(ctx, is, began)
	for waited := time.Duration(0); err == nil && ahead.After(paused) && waited < recallMax; waited += recallEvery {
		select {
		case <-time.After(recallEvery):
			settled, ahead, err = c.settled(ctx, is, began)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil || settled.Before(began) {
		return began, err
	}
	schedule, err := is.CompileSchedule(nil)
	if err != nil {
		return began, err
	}
	return schedule.Next(settled), nil
}

const (
	// recallMax bounds the wait for a run that a worker has claimed ahead: it starts within two
	// seconds or the pause withdraws it. After that it counts as running.
	recallMax   = 5 * time.Second
	recallEvery = 100 * time.Millisecond
)

// settled returns the latest occurrence of a paused job, not before a moment, that has run, runs,
// or was recorded as skipped or missed, and the latest that runs; zero for none. What is withdrawn
// by the pause is none.
func (c *changeOver) settled(ctx context.Context, is *job.Job, since time.Time) (latest, running time.Time, err error) {
	q := client.RunQuery{Job: is.FullName(), Kinds: []job.RunKind{job.RunScheduled}, PageSize: pageSize}
	for {
		page, err := c.server.Runs(ctx, q)
		if err != nil {
			return latest, running, err
		}
		isOld := false
		for i := range page.Items {
			r := &page.Items[i]
			at := r.Scheduled
			if r.Until.After(at) {
				at = r.Until
			}
			isPlanned := r.Attempt <= 1 && (r.State == job.StateReady || r.State == job.StateWaiting)
			if isOld = r.State == job.StateDone && at.Before(since); !isPlanned && r.Outcome != job.OutcomeWithdrawn && at.After(latest) {
				latest = at
			}
			if r.State == job.StateRunning && at.After(running) {
				running = at
			}
		}
		if q.PageToken = page.NextPageToken; q.PageToken == "" || isOld {
			return latest, running, nil
		}
	}
}
