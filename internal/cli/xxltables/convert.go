package xxltables

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/job"
)

// Options are what the tables do not say.
type Options struct {
	// Zone is the IANA zone of the process of the old admin, in which it read all expressions.
	Zone string
	// OneRun lets every job have one run at a time on all executors together. Without it a job
	// that may run on several machines at once today may do so in Belfry.
	OneRun bool
	// MailServer and MailFrom make channels of alarm mail; "" makes none.
	MailServer, MailFrom string
	Now                  time.Time
}

// The labels of imported jobs.
const (
	// StatusLabel says what a job was in the old admin: one of the statuses below.
	StatusLabel = "xxl-status"
	AuthorLabel = "author"
	AlarmLabel  = "alarm-email"

	StatusStarted = "started"
	StatusStopped = "stopped"
	// StatusChild is the status of a stopped job that other jobs start.
	StatusChild = "child"
)

// NumberGap is how far above the last run of the old admin Belfry begins to count: the old
// admin may make as many runs until it is switched off.
const NumberGap = 1_000_000

const (
	queueMax   = 10_000
	retriesMax = 1000
	labelMax   = 256
	nameMax    = 100
)

// Plan is what becomes of an old admin.
type Plan struct {
	Groups []GroupPlan
	Jobs   []JobPlan
	// Shared are the notes that concern many jobs, which are not among the notes of each.
	Shared []SharedNote
	// People says what has to be done by hand for each user.
	People []Note
	// Channels send mail for jobs with an alarm mail.
	Channels []*job.Channel
	// Runs of the past, for the history.
	Runs []RunPlan
	// FirstNumber is the least number that a run in Belfry may have.
	FirstNumber int64
}

// GroupPlan is what becomes of a group of executors.
type GroupPlan struct {
	Group
	Namespace string
	// Executors are those whose addresses are typed in; nil if they register.
	Executors *job.Executors
	Notes     []Note
}

// JobPlan is what becomes of a job.
type JobPlan struct {
	Old *Job
	// Group is the appname, "" if it is not known.
	Group string
	// Job is the job in Belfry, paused; nil if there is a Problem.
	Job *job.Job
	// Versions are the job with code that it had before, the oldest first.
	Versions []*job.Job
	// Next is when it is due next by Belfry after the present moment or, if the old admin says
	// when it is due next, at that time or later.
	Next    time.Time
	Notes   []Note
	Problem string
}

// Starts reports whether the job is to be active after the change.
func (p *JobPlan) Starts() bool { return p.Job != nil && p.Job.Labels[StatusLabel] != StatusStopped }

// Title names the job for people: its number and description in the old admin.
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

// Note is what a person should know: about a field of the old admin, or about a user.
type Note struct {
	Field string `json:"field"`
	Text  string `json:"text"`
}

// SharedNote is a note that concerns several jobs alike.
type SharedNote struct {
	Note
	Jobs []int64 `json:"jobs"` // by their numbers in the old admin
}

// sharedMin is of how many jobs a note is said once for all: with fewer it reads better beside each.
const sharedMin = 3

// share takes the notes that concern many jobs alike out of the jobs.
func (p *Plan) share() {
	var order []Note
	concerns := map[Note][]int64{}
	for i := range p.Jobs {
		for _, n := range p.Jobs[i].Notes {
			ids := concerns[n]
			if ids == nil {
				order = append(order, n)
			}
			if id := p.Jobs[i].Old.ID; !slices.Contains(ids[max(0, len(ids)-1):], id) {
				concerns[n] = append(ids, id)
			}
		}
	}
	for _, n := range order {
		if ids := concerns[n]; len(ids) >= sharedMin {
			p.Shared = append(p.Shared, SharedNote{n, ids})
		}
	}
	for i := range p.Jobs {
		p.Jobs[i].Notes = slices.DeleteFunc(p.Jobs[i].Notes, func(n Note) bool { return len(concerns[n]) >= sharedMin })
	}
}

// Convert makes jobs of what an admin has.
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
			p.Notes = append(p.Notes, Note{"app_name", "another group has the same name in lower case, so the namespace ends in the number of the group"})
		}
		taken[p.Namespace] = true
		c.addExecutors(p)
		if g.HasToken {
			p.Notes = append(p.Notes, Note{"access_token", "the group has a token of its own, which is not taken over: belfry secret set " + secretName(p.Namespace) +
				" -n " + p.Namespace + " keeps it, and token: " + secretName(p.Namespace) + " in a document of kind executors uses it"})
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
			address = "http://" + address // as the old admin reads it
		}
		if address = strings.TrimRight(address, "/"); !slices.Contains(e.Addresses, address) {
			e.Addresses = append(e.Addresses, address)
		}
	}
	if len(e.Addresses) == 0 {
		p.Notes = append(p.Notes, Note{"address_list", "has no address: executors must register"})
		return
	}
	if err := (job.Document{Kind: job.KindExecutors, Executors: e}).Validate(); err != nil {
		p.Notes = append(p.Notes, Note{"address_list", "is not taken over: " + err.Error()})
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
	made := map[string]*job.Channel{}
	for i := range c.plan.Jobs {
		p := &c.plan.Jobs[i]
		if p.Job == nil || p.Job.Labels[AlarmLabel] == "" {
			continue
		}
		to := p.Job.Labels[AlarmLabel]
		if c.options.MailServer == "" {
			p.note("alarm_email", "is kept as the label "+AlarmLabel+": --mail-server and --mail-from make channels that send mail for it")
			continue
		}
		key := p.Job.Namespace + " " + to
		if made[key] != nil {
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
			p.note("alarm_email", "makes no channel: %v", err)
			continue
		}
		made[key] = channel
		c.plan.Channels = append(c.plan.Channels, channel)
	}
}

// reasonMax bounds the reason of a run of the past: the old admin writes pages of HTML.
const reasonMax = 1000

var tags = regexp.MustCompile(`<[^>]*>`)

// addRuns takes over runs of jobs that are imported.
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

// convert makes a job of a job, but for what other jobs say about it.
func (c *converter) convert(old *Job) JobPlan {
	p := JobPlan{Old: old}
	group := c.groups[old.Group]
	if group == nil {
		p.Problem = fmt.Sprintf("job_group: there is no group %d", old.Group)
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
		p.Problem = "executor_handler: is empty"
	}
	c.schedule(&p)
	c.place(&p, group)
	c.policy(&p)
	return p
}

func (p *JobPlan) note(field, format string, args ...any) {
	p.Notes = append(p.Notes, Note{field, fmt.Sprintf(format, args...)})
}

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
		p.note(key, "is cut to %d bytes in the label", labelMax)
	}
	p.Job.Labels[key] = clean
}

// glue takes the code over.
func (c *converter) glue(p *JobPlan) {
	old := p.Old
	kind := glueType(old.GlueType)
	if !slices.Contains(kind.Values(), string(kind)) {
		p.Problem = fmt.Sprintf("glue_type: %q is not known", old.GlueType)
		return
	}
	p.Job.Run.XXL.Handler = ""
	p.Job.Run.XXL.Glue = &job.Glue{Type: kind, Source: old.GlueSource, Updated: old.GlueUpdated}
	p.note("glue_type", "code is sent to executors only with xxl.glue: true on the nodes")
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
		if before.Run.XXL = &xxl; problemOf(&before, c.options.Now) == "" {
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
			p.Problem = "schedule_conf: " + err.Error()
			return
		}
		if reason := expression.NeverReason(c.options.Now); reason != "" {
			*s = job.Schedule{}
			p.note("schedule_conf", "%q never falls due again: %s. The job has no schedule", old.ScheduleConf, reason)
		} else if strings.Contains(strings.ToUpper(old.ScheduleConf), "W") && hasSeveralTimes(expression, c.options.Now) {
			p.note("schedule_conf", "Quartz leaves out some times of %q, where W stands beside several times of day; Belfry runs at all of them", old.ScheduleConf)
		}
	case "FIX_RATE", "FIX_DELAY":
		seconds, err := strconv.ParseInt(old.ScheduleConf, 10, 64)
		if err != nil || seconds < 1 || seconds > int64(3650*24*time.Hour/time.Second) {
			p.Problem = fmt.Sprintf("schedule_conf: %q is not a number of seconds", old.ScheduleConf)
			return
		}
		if every := job.Duration(time.Duration(seconds) * time.Second); old.ScheduleType == "FIX_DELAY" {
			s.AfterEnd = every
		} else if s.Every = every; !old.Next.IsZero() {
			s.Align, s.Start = job.AlignStart, old.Next
		}
	case "NONE", "":
	default:
		p.Problem = fmt.Sprintf("schedule_type: %q is not known", old.ScheduleType)
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

// place takes over the route, and what a run does while another one works.
func (c *converter) place(p *JobPlan, group *GroupPlan) {
	old, j := p.Old, p.Job
	strategy, known := strategies[old.Route]
	if !known {
		strategy = job.StrategyFirst
		p.note("executor_route_strategy", "%q is not known: the first executor is used", old.Route)
	}
	j.Place.Strategy = strategy
	isOneMachine := slices.Contains([]string{"FIRST", "LAST", "CONSISTENT_HASH", "SHARDING_BROADCAST"}, old.Route) || group.IsFixed && len(group.Addresses) == 1
	overlaps := map[string]job.Overlap{"SERIAL_EXECUTION": job.OverlapQueue, "DISCARD_LATER": job.OverlapSkip, "COVER_EARLY": job.OverlapReplace}
	overlap, known := overlaps[old.Block]
	if !known {
		overlap = job.OverlapQueue
		p.note("executor_block_strategy", "%q is not known: runs wait for each other", old.Block)
	}
	if isOneMachine || c.options.OneRun {
		if j.Policy.Overlap = overlap; overlap == job.OverlapQueue {
			j.Policy.QueueLimit = queueMax
		}
		if !isOneMachine {
			p.note("executor_block_strategy", "one run at a time on all executors together, because of --overlap job")
		}
		return
	}
	j.Policy.Overlap = job.OverlapAllow
	j.Run.XXL.Block = map[job.Overlap]job.Block{job.OverlapQueue: job.BlockSerial, job.OverlapSkip: job.BlockDiscard, job.OverlapReplace: job.BlockCover}[overlap]
	p.note("executor_block_strategy", "holds for each executor by itself, as before: with the route %s the job may run on several machines at once", old.Route)
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
			p.note("executor_fail_retry_count", "%d is more than %d, the most that Belfry retries", old.Retries, retriesMax)
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
				parent.note("child_jobid", "%s is no job: left out", text)
			case id == parent.Old.ID:
				parent.note("child_jobid", "%s is the job itself: left out", text)
			case parent.Job == nil || child.Job == nil:
				parent.note("child_jobid", "%s or this job is not imported: left out", text)
				if child.Job != nil {
					child.note("child_jobid", "job %d, which starts this one, is not imported: it does not start it", parent.Old.ID)
				}
			case reaches(follows, id, parent.Old.ID):
				parent.note("child_jobid", "%s leads back to this job, and jobs that follow each other in a circle are refused: left out", text)
			case slices.Contains(follows[parent.Old.ID], id):
			default:
				follows[parent.Old.ID] = append(follows[parent.Old.ID], id)
				child.follow(parent)
			}
		}
		if n := len(follows[parent.Old.ID]); n > 0 && parent.Job.Place.Strategy == job.StrategyBroadcast {
			parent.note("child_jobid", "children start once, when all parts have succeeded, and not for each part")
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
			p.note("trigger_status", "the job was stopped, and its parents started it all the same: it is active without its own schedule %q", p.Old.ScheduleConf)
		}
		*s = job.Schedule{On: s.On}
	}
	if s.AfterEnd != 0 {
		p.note("schedule_type", "FIX_DELAY beside parents is two jobs in Belfry: the job only follows its parents")
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
	if p.Problem == "" {
		p.Problem = problemOf(p.Job, now)
	}
	if p.Problem != "" {
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
		p.note("trigger_next_time", "the old admin says %s, Belfry %s: compare --zone and the expression", moment(p.Old.Next), moment(p.Next))
	}
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Format("2006-01-02 15:04:05 -07:00")
}

func problemOf(j *job.Job, now time.Time) string {
	err := job.Document{Kind: job.KindJob, Job: j}.Validate(job.Now(now))
	var problems job.Problems
	if errors.As(err, &problems) {
		var texts []string
		for _, p := range problems {
			texts = append(texts, p.Error())
		}
		return strings.Join(texts, "; ")
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// addPeople says which tokens users need: their passwords are not taken over.
func (c *converter) addPeople(users []User) {
	for _, u := range users {
		name := cmp.Or(slug(u.Name), "user")
		if u.IsAdmin {
			c.plan.People = append(c.plan.People, Note{u.Name, "belfry token create " + name + " --role admin"})
			continue
		}
		isAny := false
		for _, id := range u.Groups {
			if g := c.groups[id]; g != nil {
				isAny = true
				c.plan.People = append(c.plan.People, Note{u.Name, fmt.Sprintf("belfry token create %s-%s --role admin -n %s", name, g.Namespace, g.Namespace)})
			}
		}
		if !isAny {
			c.plan.People = append(c.plan.People, Note{u.Name, "has rights for no group: needs no token"})
		}
	}
}
