package xxltables

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// Options are settings that the tables lack.
type Options struct {
	// Zone is the IANA zone of the process of the old admin, in which it read all expressions.
	Zone string
	// OneRun limits every job to one run at a time on all executors together. Without it a job may
	// run on several machines at once if it may today.
	OneRun bool
	// MailServer and MailFrom make channels of alarm mail; "" makes none.
	MailServer, MailFrom string
	Now                  time.Time
}

// The labels of imported jobs.
const (
	// StatusLabel is the label for a job's status in the old admin: one of the following.
	StatusLabel = "xxl-status"
	AuthorLabel = "author"
	AlarmLabel  = "alarm-email"

	StatusStarted = "started"
	StatusStopped = "stopped"
	// StatusChild is the status of a stopped job that other jobs start.
	StatusChild = "child"
)

// NumberGap is how far above the last run of the old admin Belfry begins to count: the old admin
// may make that many runs until it is switched off.
const NumberGap = 1_000_000

const (
	queueMax   = 10_000
	retriesMax = 1000
	labelMax   = 256
	nameMax    = 100
)

// Plan is the plan for an old admin.
type Plan struct {
	Groups []GroupPlan
	Jobs   []JobPlan
	// Shared are the notes that concern many jobs, which are not among the notes of each.
	Shared []SharedNote
	// People lists what must be done by hand for each user.
	People []Note
	// Channels send mail for jobs with an alarm mail.
	Channels []*job.Channel
	// Runs of the past, for the history.
	Runs []RunPlan
	// FirstNumber is the least number that a run in Belfry may have.
	FirstNumber int64
}

// GroupPlan is the plan for a group of executors.
type GroupPlan struct {
	Group
	Namespace string
	// Executors are executors with typed addresses; nil if they register.
	Executors *job.Executors
	Notes     []Note
}

// JobPlan is the plan for a job.
type JobPlan struct {
	Old *Job
	// Group is the appname, "" if unknown.
	Group string
	// Job is the job in Belfry, paused; nil if there is a Problem.
	Job *job.Job
	// Versions are the job with code that it had before, the oldest first.
	Versions []*job.Job
	// Next is its next due time in Belfry, from now or from its next time in the old admin.
	Next    time.Time
	Notes   []Note
	Problem phrase.Text
}

// Starts reports whether the job should be active after the change.
func (p *JobPlan) Starts() bool { return p.Job != nil && p.Job.Labels[StatusLabel] != StatusStopped }

// Title names the job by its number and description in the old admin.
func (p *JobPlan) Title() string {
	return strings.TrimSpace(strconv.FormatInt(p.Old.ID, 10) + " " + p.Old.Description)
}

// Schedule is the schedule as the old admin shows it.
func (p *JobPlan) Schedule() string {
	return strings.TrimSpace(p.Old.ScheduleType + " " + p.Old.ScheduleConf)
}

// RunPlan is a run of the past.
type RunPlan struct {
	Old     *Run
	Job     string // its full name
	Outcome job.Outcome
	Reason  string
	ByHand  bool
}

// Note is information for a person about a field of the old admin, or about a user.
type Note struct {
	Field string
	Text  phrase.Text
}

// SharedNote is a note that concerns several jobs alike.
type SharedNote struct {
	Note
	Jobs []int64 // by their numbers in the old admin
}

// sharedMin is the number of jobs from which a note is listed once for all: with fewer it reads
// better beside each.
const sharedMin = 3

// share moves notes on many jobs from the jobs to the plan.
func (p *Plan) share() {
	type key struct{ field, text string }
	var order []Note
	concerns := map[key][]int64{}
	of := func(n *Note) key { return key{n.Field, n.Text.String()} }
	for i := range p.Jobs {
		for _, n := range p.Jobs[i].Notes {
			ids := concerns[of(&n)]
			if ids == nil {
				order = append(order, n)
			}
			if id := p.Jobs[i].Old.ID; !slices.Contains(ids[max(0, len(ids)-1):], id) {
				concerns[of(&n)] = append(ids, id)
			}
		}
	}
	for _, n := range order {
		if ids := concerns[of(&n)]; len(ids) >= sharedMin {
			p.Shared = append(p.Shared, SharedNote{n, ids})
		}
	}
	for i := range p.Jobs {
		p.Jobs[i].Notes = slices.DeleteFunc(p.Jobs[i].Notes, func(n Note) bool { return len(concerns[of(&n)]) >= sharedMin })
	}
}

// Convert converts the data of an admin to jobs.
func Convert(a *Admin, o Options) (*Plan, error) {
	zone, err := cron.LoadZone(o.Zone)
	if err != nil {
		return nil, err
	}
	c := &converter{options: o, zone: zone, groups: map[int64]*GroupPlan{}, jobs: map[int64]*JobPlan{}, plan: &Plan{FirstNumber: a.LastLog + NumberGap}}
	c.addGroups(a.Groups)
	c.plan.Jobs = make([]JobPlan, len(a.Jobs))
	for i := range a.Jobs {
		c.plan.Jobs[i] = c.convert(&a.Jobs[i])
		c.jobs[a.Jobs[i].ID] = &c.plan.Jobs[i]
		c.plan.Jobs[i].validate(o.Now)
	}
	c.addChildren()
	for i := range c.plan.Jobs {
		c.check(&c.plan.Jobs[i])
	}
	c.addChannels()
	c.addRuns(a.Runs)
	c.addPeople(a.Users)
	c.plan.share()
	return c.plan, nil
}

type converter struct {
	options Options
	zone    *cron.Zone
	plan    *Plan
	groups  map[int64]*GroupPlan
	jobs    map[int64]*JobPlan
}

func (c *converter) addGroups(groups []Group) {
	taken := map[string]bool{}
	c.plan.Groups = make([]GroupPlan, len(groups))
	for i, g := range groups {
		p := &c.plan.Groups[i]
		p.Group, p.Namespace = g, cmp.Or(slug(g.AppName), "group-"+strconv.FormatInt(g.ID, 10))
		if taken[p.Namespace] {
			for taken[p.Namespace] {
				p.Namespace += "-" + strconv.FormatInt(g.ID, 10)
			}
			p.Notes = append(p.Notes, Note{"app_name", phrase.SameInLowerCase})
		}
		taken[p.Namespace] = true
		c.addExecutors(p)
		if g.HasToken {
			p.Notes = append(p.Notes, Note{"access_token", phrase.OwnTokenOfGroup.Of(secretName(p.Namespace), p.Namespace)})
		}
		c.groups[g.ID] = p
	}
}

// addExecutors makes a document of addresses that are typed in.
func (c *converter) addExecutors(p *GroupPlan) {
	if !p.IsFixed {
		return
	}
	e := &job.Executors{Namespace: p.Namespace, Name: p.Namespace, Group: p.AppName, Title: p.Title}
	for _, address := range p.Addresses {
		if !strings.Contains(address, "://") {
			address = "http://" + address // like the old admin
		}
		if address = strings.TrimRight(address, "/"); !slices.Contains(e.Addresses, address) {
			e.Addresses = append(e.Addresses, address)
		}
	}
	if len(e.Addresses) == 0 {
		p.Notes = append(p.Notes, Note{"address_list", phrase.NoAddresses})
		return
	}
	if err := (job.Document{Kind: job.KindExecutors, Executors: e}).Validate(); err != nil {
		p.Notes = append(p.Notes, Note{"address_list", phrase.NotTakenOver.Of(phrase.OfError(err))})
		return
	}
	p.Executors = e
}

// secretName returns a name for the secret of a namespace.
func secretName(namespace string) string {
	return strings.NewReplacer("-", "_", ".", "_").Replace(namespace) + "_token"
}

// addChannels makes a channel in each namespace for each list of addresses that receives
// mail about failures.
func (c *converter) addChannels() {
	channels := map[string]*job.Channel{}
	for i := range c.plan.Jobs {
		p := &c.plan.Jobs[i]
		if p.Job == nil || p.Job.Labels[AlarmLabel] == "" {
			continue
		}
		to := p.Job.Labels[AlarmLabel]
		if c.options.MailServer == "" {
			p.note("alarm_email", phrase.AlarmLabelled.Of(AlarmLabel))
			continue
		}
		key := p.Job.Namespace + " " + to
		if channels[key] != nil {
			continue
		}
		name := "alarm-" + slug(strings.Join(split(to), "-"))
		for n := 2; slices.ContainsFunc(c.plan.Channels, func(other *job.Channel) bool { return other.Namespace == p.Job.Namespace && other.Name == name }); n++ {
			name = fmt.Sprintf("alarm-%s-%d", slug(strings.Join(split(to), "-")), n)
		}
		channel := &job.Channel{
			Namespace: p.Job.Namespace, Name: name, Description: "Mail of failures, as alarm_email of XXL-JOB sent it.",
			To:    job.Service{Mail: &job.MailService{Server: c.options.MailServer, From: c.options.MailFrom, To: split(to)}},
			Rules: []job.ChannelRule{{Events: []job.Notice{job.NoticeFailed}, Labels: map[string]string{AlarmLabel: to}}},
			Zone:  c.options.Zone,
		}
		if err := (job.Document{Kind: job.KindChannel, Channel: channel}).Validate(); err != nil {
			p.note("alarm_email", phrase.NoChannelMade.Of(phrase.OfError(err)))
			continue
		}
		channels[key] = channel
		c.plan.Channels = append(c.plan.Channels, channel)
	}
}

// reasonMax bounds the reason of a run of the past: the old admin writes pages of HTML.
const reasonMax = 1000

var tags = regexp.MustCompile(`<[^>]*>`)

// addRuns converts runs of imported jobs.
func (c *converter) addRuns(runs []Run) {
	for i := range runs {
		old := &runs[i]
		p := c.jobs[old.Job]
		if p == nil || p.Job == nil {
			continue
		}
		r := RunPlan{Old: old, Job: p.Job.FullName(), Outcome: job.OutcomeFailed, Reason: old.HandleMessage}
		r.ByHand = strings.Contains(old.TriggerMessage, "手动触发") || strings.Contains(old.TriggerMessage, "Manual trigger")
		switch {
		case old.HandleCode == 0:
			r.Reason = "it was not sent: " + old.TriggerMessage
		case old.HandleCode == codeOK:
			r.Outcome, r.Reason = job.OutcomeSucceeded, ""
		case old.HandleCode == 502:
			r.Outcome = job.OutcomeTimedOut
		}
		r.Reason = strings.Join(strings.Fields(tags.ReplaceAllString(strings.ReplaceAll(r.Reason, "\x00", ""), " ")), " ")
		if len(r.Reason) > reasonMax {
			r.Reason = strings.ToValidUTF8(r.Reason[:reasonMax], "") + " […]"
		}
		c.plan.Runs = append(c.plan.Runs, r)
	}
}

// slug makes a name for Belfry: lower-case letters, digits, dots, dashes and underscores, the
// first a letter or digit.
func slug(text string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '-'
	}, strings.TrimSpace(text))
	name = strings.Trim(name, "-._")
	return strings.TrimRight(name[:min(len(name), nameMax)], "-._")
}

// convert converts a job, without the parts that depend on other jobs.
func (c *converter) convert(old *Job) JobPlan {
	p := JobPlan{Old: old}
	group := c.groups[old.Group]
	if group == nil {
		p.Problem = phrase.InField.Of("job_group", phrase.NoSuchGroup.Of(int(old.Group)))
		return p
	}
	p.Group = group.AppName
	isGlue := old.GlueType != "" && old.GlueType != "BEAN"
	handler := cmp.Or(slug(old.Handler), "job")
	if isGlue {
		handler = "job"
	}
	j := &job.Job{
		Namespace: group.Namespace, Name: fmt.Sprintf("%s-%d", handler, old.ID), Description: old.Description,
		Labels: map[string]string{StatusLabel: StatusStopped}, Paused: true,
		Params: map[string]job.Param{"param": {Default: old.Param}},
		Run:    job.RunSpec{XXL: &job.XXL{Group: group.AppName, Handler: old.Handler, ID: int(old.ID), Param: "{{ .Param.param }}"}},
	}
	if old.IsOn {
		j.Labels[StatusLabel] = StatusStarted
	}
	p.Job = j
	p.label(AuthorLabel, old.Author)
	p.label(AlarmLabel, old.AlarmEmail)
	if isGlue {
		c.glue(&p)
	} else if old.Handler == "" {
		p.Problem = phrase.InField.Of("executor_handler", phrase.Empty)
	}
	c.schedule(&p)
	c.place(&p, group)
	c.policy(&p)
	return p
}

func (p *JobPlan) note(field string, text phrase.Text) { p.Notes = append(p.Notes, Note{field, text}) }

func (p *JobPlan) label(key, value string) {
	if value == "" {
		return
	}
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, value)
	if len(clean) > labelMax {
		clean = strings.ToValidUTF8(clean[:labelMax], "")
		p.note(key, phrase.CutInLabel.Of(labelMax))
	}
	p.Job.Labels[key] = clean
}

// glue converts the code.
func (c *converter) glue(p *JobPlan) {
	old := p.Old
	kind := glueType(old.GlueType)
	if !slices.Contains(kind.Values(), string(kind)) {
		p.Problem = phrase.InField.Of("glue_type", phrase.NotKnown.Of(phrase.Quoted(old.GlueType)))
		return
	}
	p.Job.Run.XXL.Handler = ""
	p.Job.Run.XXL.Glue = &job.Glue{Type: kind, Source: old.GlueSource, Updated: old.GlueUpdated}
	p.note("glue_type", phrase.GlueNeedsNodes)
}

// addVersions makes the versions of a job with the code that it had before.
func (c *converter) addVersions(p *JobPlan) {
	now := p.Job.Run.XXL.Glue
	for _, v := range p.Old.Versions {
		kind := glueType(v.Type)
		if now == nil || v.Source == now.Source && kind == now.Type || strings.TrimSpace(v.Source) == "" {
			continue
		}
		before, xxl := *p.Job, *p.Job.Run.XXL
		xxl.Glue = &job.Glue{Type: kind, Source: v.Source, Updated: v.Updated}
		if before.Run.XXL = &xxl; problemOf(&before, c.options.Now).IsZero() {
			p.Versions = append(p.Versions, &before)
		}
	}
}

func glueType(name string) job.GlueType {
	return job.GlueType(strings.ToLower(strings.TrimPrefix(name, "GLUE_")))
}

func (c *converter) schedule(p *JobPlan) {
	old, s := p.Old, &p.Job.Schedule
	switch old.ScheduleType {
	case "CRON":
		s.Cron, s.Dialect, s.Timezone, s.ClockChange = []string{old.ScheduleConf}, job.DialectQuartz, c.options.Zone, job.ClockSkipLast
		expression, err := cron.Parse(old.ScheduleConf, cron.WithDialect(cron.Quartz), cron.In(c.zone), cron.WithClockChange(cron.SkipLast))
		if err != nil {
			p.Problem = phrase.InField.Of("schedule_conf", phrase.OfError(err))
			return
		}
		if why := expression.Never(c.options.Now); !why.IsZero() {
			*s = job.Schedule{}
			p.note("schedule_conf", phrase.NeverAgain.Of(phrase.Exact(old.ScheduleConf), why))
		} else if strings.Contains(strings.ToUpper(old.ScheduleConf), "W") && hasSeveralTimes(expression, c.options.Now) {
			p.note("schedule_conf", phrase.QuartzLeavesOut.Of(phrase.Exact(old.ScheduleConf)))
		}
	case "FIX_RATE", "FIX_DELAY":
		seconds, err := strconv.ParseInt(old.ScheduleConf, 10, 64)
		if err != nil || seconds < 1 || seconds > int64(3650*24*time.Hour/time.Second) {
			p.Problem = phrase.InField.Of("schedule_conf", phrase.NotSeconds.Of(phrase.Quoted(old.ScheduleConf)))
			return
		}
		if every := job.Duration(time.Duration(seconds) * time.Second); old.ScheduleType == "FIX_DELAY" {
			s.AfterEnd = every
		} else if s.Every = every; !old.Next.IsZero() {
			s.Align, s.Start = job.AlignStart, old.Next
		}
	case "NONE", "":
	default:
		p.Problem = phrase.InField.Of("schedule_type", phrase.NotKnown.Of(phrase.Quoted(old.ScheduleType)))
	}
}

// hasSeveralTimes reports whether an expression is due several times on the day when it is due next.
func hasSeveralTimes(e *cron.Expression, now time.Time) bool {
	first := e.Next(now)
	day := time.Date(first.Year(), first.Month(), first.Day(), 0, 0, 0, 0, first.Location())
	first = e.Next(day.AddDate(0, 0, 1).Add(-1)) // on a whole day
	if first.IsZero() {
		return false
	}
	second := e.Next(first)
	return !second.IsZero() && second.YearDay() == first.YearDay() && second.Year() == first.Year()
}

// strategies are the routes of XXL-JOB.
var strategies = map[string]job.Strategy{
	"FIRST": job.StrategyFirst, "LAST": job.StrategyLast, "ROUND": job.StrategyRoundRobin, "RANDOM": job.StrategyRandom,
	"CONSISTENT_HASH": job.StrategyHash, "LEAST_FREQUENTLY_USED": job.StrategyLeastFrequentlyUsed,
	"LEAST_RECENTLY_USED": job.StrategyLeastRecentlyUsed, "FAILOVER": job.StrategyFirst, "BUSYOVER": job.StrategyFirstIdle,
	"SHARDING_BROADCAST": job.StrategyBroadcast,
}

// place converts the route, and the treatment of a run while another one is running.
func (c *converter) place(p *JobPlan, group *GroupPlan) {
	old, j := p.Old, p.Job
	strategy, known := strategies[old.Route]
	if !known {
		strategy = job.StrategyFirst
		p.note("executor_route_strategy", phrase.RouteUnknown.Of(phrase.Quoted(old.Route)))
	}
	j.Place.Strategy = strategy
	isOneMachine := slices.Contains([]string{"FIRST", "LAST", "CONSISTENT_HASH", "SHARDING_BROADCAST"}, old.Route) || group.IsFixed && len(group.Addresses) == 1
	overlaps := map[string]job.Overlap{"SERIAL_EXECUTION": job.OverlapQueue, "DISCARD_LATER": job.OverlapSkip, "COVER_EARLY": job.OverlapReplace}
	overlap, known := overlaps[old.Block]
	if !known {
		overlap = job.OverlapQueue
		p.note("executor_block_strategy", phrase.BlockUnknown.Of(phrase.Quoted(old.Block)))
	}
	if isOneMachine || c.options.OneRun {
		if j.Policy.Overlap = overlap; overlap == job.OverlapQueue {
			j.Policy.QueueLimit = queueMax
		}
		if !isOneMachine {
			p.note("executor_block_strategy", phrase.OneOnAll)
		}
		return
	}
	j.Policy.Overlap = job.OverlapAllow
	j.Run.XXL.Block = map[job.Overlap]job.Block{job.OverlapQueue: job.BlockSerial, job.OverlapSkip: job.BlockDiscard, job.OverlapReplace: job.BlockCover}[overlap]
	p.note("executor_block_strategy", phrase.EachExecutor.Of(old.Route))
}

func (c *converter) policy(p *JobPlan) {
	old, policy := p.Old, &p.Job.Policy
	policy.Missed = job.MissedNone
	if old.Misfire == "FIRE_ONCE_NOW" {
		forever := job.Forever
		policy.Missed, policy.LateBy = job.MissedLatest, &forever
	}
	if old.Timeout > 0 {
		timeout := job.Duration(time.Duration(old.Timeout) * time.Second)
		policy.Timeout = &timeout
	}
	if old.Retries > 0 {
		attempts, none := int(min(old.Retries, retriesMax)), job.Duration(0)
		policy.Retry = &job.Retry{Attempts: &attempts, Backoff: &none}
		if old.Retries > retriesMax {
			p.note("executor_fail_retry_count", phrase.MostRetries.Of(strconv.FormatInt(old.Retries, 10), retriesMax))
		}
	}
}

// addChildren lets jobs follow their parents.
func (c *converter) addChildren() {
	follows := map[int64][]int64{} // the children of a job
	for i := range c.plan.Jobs {
		parent := &c.plan.Jobs[i]
		for _, text := range parent.Old.Children {
			id, err := strconv.ParseInt(text, 10, 64)
			child := c.jobs[id]
			switch {
			case err != nil || child == nil:
				parent.note("child_jobid", phrase.NoJobLeftOut.Of(text))
			case id == parent.Old.ID:
				parent.note("child_jobid", phrase.ItselfLeftOut.Of(text))
			case parent.Job == nil || child.Job == nil:
				parent.note("child_jobid", phrase.ChildNotImported.Of(text))
				if child.Job != nil {
					child.note("child_jobid", phrase.ParentNotImported.Of(strconv.FormatInt(parent.Old.ID, 10)))
				}
			case reaches(follows, id, parent.Old.ID):
				parent.note("child_jobid", phrase.CircleLeftOut.Of(text))
			case slices.Contains(follows[parent.Old.ID], id):
			default:
				follows[parent.Old.ID] = append(follows[parent.Old.ID], id)
				child.follow(parent)
			}
		}
		if n := len(follows[parent.Old.ID]); n > 0 && parent.Job.Place.Strategy == job.StrategyBroadcast {
			parent.note("child_jobid", phrase.ChildrenOnce)
		}
	}
}

// follow makes a job due when another one has succeeded.
func (p *JobPlan) follow(parent *JobPlan) {
	name := parent.Job.Name
	if parent.Job.Namespace != p.Job.Namespace {
		name = parent.Job.FullName()
	}
	s := &p.Job.Schedule
	if !p.Old.IsOn {
		p.Job.Labels[StatusLabel] = StatusChild
		if len(s.Cron) > 0 || s.Every != 0 || s.AfterEnd != 0 {
			p.note("trigger_status", phrase.StoppedChild.Of(phrase.Exact(p.Old.ScheduleConf)))
		}
		*s = job.Schedule{On: s.On}
	}
	if s.AfterEnd != 0 {
		p.note("schedule_type", phrase.DelayAndParents)
		s.AfterEnd = 0
	}
	s.On = append(s.On, job.Upstream{Job: name})
}

// reaches reports whether one job leads to another over children.
func reaches(follows map[int64][]int64, from, to int64) bool {
	seen := map[int64]bool{}
	var walk func(int64) bool
	walk = func(id int64) bool {
		if id == to {
			return true
		}
		if seen[id] {
			return false
		}
		seen[id] = true
		return slices.ContainsFunc(follows[id], walk)
	}
	return walk(from)
}

// validate finds what Belfry would refuse.
func (p *JobPlan) validate(now time.Time) {
	if p.Problem.IsZero() {
		p.Problem = problemOf(p.Job, now)
	}
	if !p.Problem.IsZero() {
		p.Job = nil
	}
}

// check validates the job with its parents, and compares when it is due next.
func (c *converter) check(p *JobPlan) {
	if p.validate(c.options.Now); p.Job == nil {
		return
	}
	c.addVersions(p)
	schedule, err := p.Job.CompileSchedule(nil)
	if err != nil {
		return
	}
	from := c.options.Now
	if !p.Old.Next.IsZero() {
		from = p.Old.Next.Add(-time.Millisecond)
	}
	if p.Next = schedule.Next(from).In(c.zone.Location()); !p.Old.Next.IsZero() && !p.Next.Equal(p.Old.Next) && p.Job.Labels[StatusLabel] == StatusStarted {
		p.note("trigger_next_time", phrase.OtherNext.Of(moment(p.Old.Next), moment(p.Next)))
	}
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format("2006-01-02 15:04:05 -07:00")
}

func problemOf(j *job.Job, now time.Time) phrase.Text {
	if err := (job.Document{Kind: job.KindJob, Job: j}).Validate(job.Now(now)); err != nil {
		return phrase.OfError(err)
	}
	return phrase.Text{}
}

// addPeople lists the tokens that users need: their passwords are not imported.
func (c *converter) addPeople(users []User) {
	for _, u := range users {
		name := cmp.Or(slug(u.Name), "user")
		by := func(command string) Note { return Note{u.Name, phrase.Said.Of(phrase.Words(command))} }
		if u.IsAdmin {
			c.plan.People = append(c.plan.People, by("belfry token create "+name+" --role admin"))
			continue
		}
		isAny := false
		for _, id := range u.Groups {
			if g := c.groups[id]; g != nil {
				isAny = true
				c.plan.People = append(c.plan.People, by(fmt.Sprintf("belfry token create %s-%s --role admin -n %s", name, g.Namespace, g.Namespace)))
			}
		}
		if !isAny {
			c.plan.People = append(c.plan.People, Note{u.Name, phrase.NoRights})
		}
	}
}
