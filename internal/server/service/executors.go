package service

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Executors shows the executors of XXL-JOB, and takes over numbers and history from their
// old admin.
type Executors struct {
	jobs  *Jobs
	store interface {
		runStore
		pastStore
	}
	mu     sync.Mutex
	named  namedGroups  // the last result for callers with access to all namespaces
	search *groupSearch // that is under way, nil for none
}

// namedGroups are the groups of jobs, with the number of jobs of each.
type namedGroups struct {
	jobs  map[string]int
	all   bool // no job was left out
	until time.Time
}

const (
	// namedParts is how many parts of [store.JobLookMax] jobs are searched for groups, for each
	// kind of work: what more than 50,000 jobs name is not worth a slow page.
	namedParts = 50
	// namedRest is how many times as long as a search took its answer is kept, so that pages
	// that refresh cost a small part of a processor.
	namedRest = 20
	// namedWait is how long a reader waits for a new answer where there is an old one: a search of 100,000
	// jobs takes 0.3 s, and the page reads itself again.
	namedWait = 50 * time.Millisecond
	// namedTimeout bounds a search, which no reader ends.
	namedTimeout = time.Minute
)

// pastStore is the part of a store that accepts external records.
type pastStore interface {
	Append(ctx context.Context, records []store.Record) error
}

// countedMax bounds the runs that are counted at executors: each is a request.
const countedMax = store.MaxBatch

// List returns the executors by group and address, and all groups: of groups that jobs of the caller
// name.
func (s *Executors) List(ctx context.Context, who Caller) (page client.ExecutorPage, err error) {
	of, err := who.reads("")
	if err != nil {
		return page, err
	}
	registered, err := candidatesIn(ctx, s.store)
	if err != nil {
		return page, err
	}
	named, err := s.groupsNamed(ctx, of)
	if err != nil {
		return page, err
	}
	list := []client.Executor{}
	for _, r := range registered {
		// Executors are of the whole server: a caller in a namespace sees the groups of its jobs.
		if of == nil || named.jobs[r.Group] > 0 {
			list = append(list, client.Executor{Group: r.Group, Address: r.Address, Generation: r.Generation, Listed: r.Listed, Seen: r.Seen})
		}
	}
	running, err := s.running(ctx)
	for i := range list {
		list[i].Running = running[list[i].Address]
	}
	page.Items, page.Groups, page.AllJobs = list, groupsOf(list, named.jobs), named.all
	return page, err
}

// groupsOf returns the groups that executors are in or jobs name, by name.
func groupsOf(list []client.Executor, jobs map[string]int) []client.ExecutorGroup {
	executors := map[string]int{}
	for name := range jobs {
		executors[name] = 0
	}
	for i := range list {
		executors[list[i].Group]++
	}
	groups := []client.ExecutorGroup{}
	for _, name := range slices.Sorted(maps.Keys(executors)) {
		groups = append(groups, client.ExecutorGroup{Group: name, Executors: executors[name], Jobs: jobs[name]})
	}
	return groups
}

// groupsNamed returns the groups that the jobs of a caller name.
func (s *Executors) groupsNamed(ctx context.Context, of scope) (namedGroups, error) {
	if of != nil {
		found, err := s.searchGroups(ctx, of)
		found.all = false // others may have jobs too
		return found, err
	}
	s.mu.Lock()
	known, search := s.named, s.search
	if s.jobs.now().Before(known.until) {
		s.mu.Unlock()
		return known, nil
	}
	if search == nil {
		search = &groupSearch{done: make(chan struct{})}
		s.search = search
		go s.renewGroups(context.WithoutCancel(ctx), search)
	}
	s.mu.Unlock()
	var patience <-chan time.Time
	if !known.until.IsZero() {
		wait := time.NewTimer(namedWait)
		defer wait.Stop()
		patience = wait.C
	}
	select {
	case <-search.done:
		return search.found, search.err
	case <-patience:
		return known, nil
	case <-ctx.Done():
		return namedGroups{}, ctx.Err()
	}
}

// groupSearch is a search of all groups, for everyone who waits for it.
type groupSearch struct {
	done  chan struct{} // closed once the rest is set
	found namedGroups
	err   error
}

// renewGroups searches all groups, and keeps the result.
func (s *Executors) renewGroups(ctx context.Context, search *groupSearch) {
	ctx, cancel := context.WithTimeout(ctx, namedTimeout)
	defer cancel()
	began := s.jobs.now()
	search.found, search.err = s.searchGroups(ctx, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if search.err == nil {
		now := s.jobs.now()
		search.found.until = now.Add(namedRest * now.Sub(began))
		s.named = search.found
	}
	s.search = nil
	close(search.done)
}

func (s *Executors) searchGroups(ctx context.Context, of scope) (namedGroups, error) {
	found := namedGroups{jobs: map[string]int{}, all: true}
	for _, work := range []job.Work{job.WorkXXL, job.WorkFlow} {
		q := store.JobQuery{Work: work, Limit: store.JobLookMax}
		for part := 0; ; part++ {
			if part == namedParts {
				found.all = false
				break
			}
			list, next, err := of.jobs(ctx, s.jobs.store, q)
			if err != nil {
				return found, err
			}
			for _, j := range list {
				for _, name := range groupsIn(&j.Definition.Run) {
					found.jobs[name]++
				}
			}
			if q.After = next; next == "" {
				break
			}
		}
	}
	return found, nil
}

// groupsIn returns the groups that the work of a job names, each once.
func groupsIn(r *job.RunSpec) (groups []string) {
	add := func(r *job.RunSpec) {
		if name := r.Group(); name != "" && !slices.Contains(groups, name) {
			groups = append(groups, name)
		}
	}
	add(r)
	if f := r.Flow; f != nil {
		for _, step := range f.All() {
			add(&step.Run)
		}
	}
	return groups
}

// Addresses returns the executors of a group, by address.
func (s *Executors) Addresses(ctx context.Context, who Caller, group string) (list []string, err error) {
	of, err := who.reads("")
	if err != nil {
		return nil, err
	}
	named, err := s.groupsNamed(ctx, of)
	if err != nil || of != nil && named.jobs[group] == 0 {
		return nil, err
	}
	candidates, err := candidatesIn(ctx, s.store)
	for _, c := range candidates {
		if c.Group == group {
			list = append(list, c.Address)
		}
	}
	return list, err
}

// running returns how many runs are at each address.
func (s *Executors) running(ctx context.Context) (map[string]int, error) {
	runs, err := s.store.ListActive(ctx, store.ActiveQuery{State: job.StateRunning, Limit: countedMax})
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for i := range runs {
		if !runs[i].Session.IsZero() {
			continue // a node has it
		}
		list, err := s.store.Handovers(ctx, store.HandoverQuery{Run: runs[i].ID, Limit: store.MaxBatch})
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(list, func(h store.Handover) bool { return h.Kind == store.ExecutorsOfXXL && !h.IsOver() })
		if at >= 0 {
			count[list[at].To]++
		}
	}
	return count, nil
}

// NumberMax bounds the numbers: executors in Node read no larger ones.
const NumberMax = 1 << 52

// Raise makes the numbers of runs at executors start at a given number or above, to avoid
// numbers of another admin. It returns the first.
func (s *Executors) Raise(ctx context.Context, who Caller, r client.NumberRequest) (client.Number, error) {
	if err := who.May(Administer); err != nil {
		return client.Number{}, err
	}
	if r.From < 1 || r.From > NumberMax {
		return client.Number{}, WrongField("from", phrase.NumberFromTo.Of(NumberMax))
	}
	first, err := s.store.Numbers(ctx, 1, r.From)
	return client.Number{First: first}, err
}

// AddPastRuns adds runs of an xxl-job-admin to the history. Existing ones stay unchanged:
// the id is made of job, number and time.
func (s *Executors) AddPastRuns(ctx context.Context, who Caller, past client.PastRuns) (client.PastRunsTaken, error) {
	if err := who.May(Administer); err != nil {
		return client.PastRunsTaken{}, err
	}
	jobs := map[string]*store.Job{}
	records := make([]store.Record, len(past.Items))
	for i := range past.Items {
		item := &past.Items[i]
		wrong := func(field string, detail phrase.Text) (client.PastRunsTaken, error) {
			return client.PastRunsTaken{}, WrongField(fmt.Sprintf("items[%d].%s", i, field), detail)
		}
		namespace, name, isFull := strings.Cut(item.Job, "/")
		switch {
		case !isFull:
			return wrong("job", phrase.NotFullName)
		case item.Started.IsZero() || item.Started.UnixMilli() <= 0:
			return wrong("started", phrase.Before1970)
		case item.Ended.Before(item.Started):
			return wrong("ended", phrase.BeforeStarted)
		}
		if jobs[item.Job] == nil {
			j, err := s.jobs.find(ctx, who, Administer, Name{namespace, name})
			if err != nil {
				return client.PastRunsTaken{}, err
			}
			jobs[item.Job] = j
		}
		j := jobs[item.Job].Definition
		sum := sha256.Sum256(fmt.Appendf(nil, "xxl %s %d", j.UID, item.Number))
		id, err := job.NewID(item.Started, bytes.NewReader(sum[:]))
		if err != nil {
			return client.PastRunsTaken{}, err
		}
		r := &records[i]
		r.Run = job.Run{
			ID: id, JobUID: j.UID, Namespace: j.Namespace, Name: j.Name, Kind: job.RunScheduled, Key: item.Started.UTC().Format(time.RFC3339Nano),
			Epoch: j.Epoch, State: job.StateDone, Scheduled: item.Started, Due: item.Started, Attempt: 1, Node: item.Executor, Outcome: item.Outcome, Reason: job.Text(item.Reason),
		}
		if item.ByHand {
			r.Run.Kind, r.Run.Key = job.RunByHand, id.String()
		}
		r.Attempt = job.Attempt{Run: id, Number: 1, Node: item.Executor, Started: item.Started, Ended: item.Ended, Outcome: item.Outcome, Reason: job.Text(item.Reason)}
		r.Final = true
	}
	if len(records) == 0 {
		return client.PastRunsTaken{}, nil
	}
	return client.PastRunsTaken{Taken: len(records)}, s.store.Append(ctx, records)
}

// executorsNamed is the most executors in a message.
const executorsNamed = 5

// executorFor returns the known address of an executor that a request names.
func (s *Runs) executorFor(ctx context.Context, j *job.Job, asked string) (string, error) {
	group := j.Run.Group()
	if group == "" {
		return "", WrongField("executor", phrase.NotForXXL.Of(j.FullName()), phrase.LeaveOut)
	}
	candidates, err := candidatesIn(ctx, s.store)
	if err != nil {
		return "", err
	}
	asked = strings.TrimRight(asked, "/")
	var known []string
	for _, c := range candidates {
		switch {
		case c.Group != group:
		case c.Address == asked, c.Address == "http://"+asked:
			return c.Address, nil
		default:
			known = append(known, c.Address)
		}
	}
	if len(known) == 0 {
		return "", WrongField("executor", phrase.NoExecutorOfGroup.Of(group))
	}
	more := max(0, len(known)-executorsNamed)
	return "", WrongField("executor", phrase.ExecutorUnknown.Of(phrase.Quoted(asked), group), phrase.ItHas.Of(known[:len(known)-more], more))
}

// addReceiver adds the last receiver of a run's work, and why it has not begun. Nothing changes if nodes
// do the work.
func (s *Runs) addReceiver(ctx context.Context, r *client.Run) error {
	list, err := s.store.Handovers(ctx, store.HandoverQuery{Run: r.ID, Limit: store.MaxBatch})
	if err != nil || len(list) == 0 {
		return err
	}
	last := &list[len(list)-1]
	r.Executor = cmp.Or(last.To, r.Executor)
	if r.State != job.StateRunning || last.IsOver() || last.Attempt.Number != r.Attempt {
		return nil
	}
	var about struct{ Waits *job.Reason }
	if err := json.Unmarshal([]byte(last.About), &about); err == nil && about.Waits != nil && r.Reason == "" {
		r.Why = client.WhyOf(*about.Waits)
	}
	return nil
}
