package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/heap"
	"github.com/belfry-cron/belfry/internal/parallel"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ownerLabel is the label that marks a job as belonging to the files of an
// owner.
const ownerLabel = "belfry/owner"

type applyInput struct {
	Body client.Apply
}

type applyOutput struct {
	Body client.Applied
}

// identity names what a document describes.
type identity struct {
	kind job.Kind
	name string
}

// order is that in which documents are written: jobs name calendars and pools.
var order = map[job.Kind]int{job.KindCalendar: 0, job.KindPool: 1, job.KindJob: 2}

// step is what applying does to one thing.
type step struct {
	document job.Document
	pointer  string // where it stands in the request
	result   client.ApplyResult
	// present is what is there, and version its version, 0 for none; uid that
	// of a job.
	present job.Document
	version int64
	uid     job.ID
	// saysPaused is set when a job says whether it is paused. One that says
	// nothing stays as it is: files do not undo what was done by hand in need.
	saysPaused bool
	wasPaused  bool
	// depth is how many jobs a job follows one by way of another, at most.
	depth int
	// follows are the full names of those, and absent are the ones that are not there.
	follows []string
	absent  map[string]bool
}

// apply makes documents true: all of them are checked before the first is
// written. Jobs are written in batches, of which a store that fails in the middle
// leaves some; applying again does the rest.
func (a *api) apply(ctx context.Context, in *applyInput) (*applyOutput, error) {
	if in.Body.Prune && in.Body.Owner == "" {
		return nil, wrongRequest(client.FieldError{
			Pointer: "/owner", Path: "owner", Detail: "is missing", Hint: "prune deletes what an owner has no more, so it must be named",
		})
	}
	const many = 100 // documents that are worth it
	if len(in.Body.Documents) >= many {
		defer heap.NeedRoom()()
	}
	steps, wrong, err := a.decodeAll(in.Body.Documents)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		if err := mayDefine(ctx, s.document, s.pointer); err != nil {
			return nil, cmp.Or(refuseAll(wrong), err)
		}
	}
	if err := a.checkAll(ctx, steps, wrong); err != nil {
		return nil, err
	}
	if err := a.compareAll(ctx, steps, in.Body.Owner); err != nil {
		return nil, err
	}
	if in.Body.Prune {
		pruned, err := a.prune(ctx, steps, in.Body.Owner)
		if err != nil {
			return nil, err
		}
		steps = append(steps, pruned...)
	}
	warnOfAbsent(steps)
	if in.Body.Diff {
		if err := diffAll(steps); err != nil {
			return nil, err
		}
	}
	if !in.Body.DryRun {
		if err := a.writeAll(ctx, steps); err != nil {
			return nil, err
		}
	}
	out := &applyOutput{Body: client.Applied{DryRun: in.Body.DryRun, Results: make([]client.ApplyResult, len(steps))}}
	for i, s := range steps {
		out.Body.Results[i] = s.result
	}
	return out, nil
}

// warnOfAbsent warns of jobs that follow others which are not there, or will not be.
// They may come later.
func warnOfAbsent(steps []*step) {
	deleted := map[string]bool{}
	for _, s := range steps {
		if s.result.Result == client.Deleted {
			deleted[s.result.Name] = true
		}
	}
	for _, s := range steps {
		for _, up := range s.follows {
			if s.absent[up] || deleted[up] {
				s.result.Warnings = append(s.result.Warnings, absentWarning(up))
			}
		}
	}
}

func absentWarning(up string) string {
	return job.Problem{Path: "schedule.on", Message: fmt.Sprintf("there is no job %s: until there is, nothing falls due by it", up)}.Error()
}

// diffAll adds to the results which lines change.
func diffAll(steps []*step) (err error) {
	for _, s := range steps {
		name := string(s.result.Kind) + " " + s.result.Name
		before, after := versioned(name, s.version), versioned(name, s.result.Version)
		switch s.result.Result {
		case client.Unchanged:
			continue
		case client.Created:
			before = nowhere
		case client.Deleted:
			after = nowhere
		}
		if s.result.Diff, err = difference(before, s.present, after, s.document); err != nil {
			return err
		}
	}
	return nil
}

// decodeAll reads the documents, those with mistakes as far as they can be read, and
// returns the mistakes of all.
func (a *api) decodeAll(raw []client.Document) (steps []*step, wrong []client.FieldError, err error) {
	documents := make([]job.Document, len(raw))
	failures := make([]error, len(raw))
	pointerTo := func(i int) string { return "/documents/" + strconv.Itoa(i) }
	inParts(len(raw), func(i int) { documents[i], failures[i] = decode(raw[i], pointerTo(i)) })
	steps = make([]*step, 0, len(raw))
	seen := make(map[identity]int, len(raw))
	for i, d := range documents {
		pointer := pointerTo(i)
		var p *problem
		var unread job.Problems
		switch err := failures[i]; {
		case errors.As(err, &p):
			wrong = append(wrong, p.Errors...)
			continue
		case errors.As(err, &unread):
			wrong = append(wrong, invalid(unread, pointer).Errors...)
			if d.Kind == "" {
				continue
			}
		case err != nil:
			return nil, nil, err
		}
		id := identity{d.Kind, d.FullName()}
		if first, twice := seen[id]; twice && d.IsNamed() {
			wrong = append(wrong, client.FieldError{
				Pointer: pointer + "/name", Path: "name", Detail: fmt.Sprintf("%s %s is defined twice", d.Kind, d.FullName()),
				Hint: fmt.Sprintf("document %d is the first", first+1),
			})
			continue
		}
		seen[id] = i
		steps = append(steps, &step{
			document: d, pointer: pointer, saysPaused: d.Says("paused"),
			result: client.ApplyResult{Kind: d.Kind, Name: d.FullName()},
		})
	}
	return steps, wrong, nil
}

// refuseAll is the problem of mistakes in several documents.
func refuseAll(wrong []client.FieldError) error {
	if len(wrong) == 0 {
		return nil
	}
	p := refuse(client.TypeInvalid, "the documents have %d mistakes, and nothing was changed", len(wrong))
	if len(wrong) == 1 {
		p.Detail = "the documents have a mistake, and nothing was changed"
	}
	return p.withErrors(wrong...)
}

// checkAll finds what is wrong with what the documents say, beside what is known to be.
// Jobs may name calendars that come with them.
func (a *api) checkAll(ctx context.Context, steps []*step, wrong []client.FieldError) error {
	stored, err := a.calendars(ctx)
	if err != nil {
		return err
	}
	sent := map[string]*job.Calendar{}
	for _, s := range steps {
		if s.document.Calendar != nil {
			sent[s.result.Name] = s.document.Calendar
		}
	}
	calendars := func(namespace, name string) *job.Calendar {
		if c := sent[namespace+"/"+name]; c != nil {
			return c
		}
		return stored(namespace, name)
	}
	rules, err := a.rules(ctx, calendars)
	if err != nil {
		return err
	}
	failures := make([]error, len(steps))
	inParts(len(steps), func(i int) {
		s := steps[i]
		if failures[i] = check(s.document, rules); failures[i] != nil {
			return
		}
		for _, w := range s.document.Warnings(rules...) {
			s.result.Warnings = append(s.result.Warnings, job.Problem{Path: w.Path, Message: w.Message, Hint: w.Hint}.Error())
		}
		s.document = s.document.WithoutSource()
	})
	for i, s := range steps {
		var mistakes job.Problems
		if err := failures[i]; errors.As(err, &mistakes) {
			wrong = append(wrong, invalid(mistakes, s.pointer).Errors...)
		} else if err != nil {
			return err
		}
	}
	ups := a.upstreams(ctx, steps)
	round, err := ups.cycles(steps)
	if err != nil {
		return err
	}
	if err := refuseAll(append(wrong, round...)); err != nil {
		return err
	}
	return ups.tell(steps)
}

// compareAll finds what would change.
func (a *api) compareAll(ctx context.Context, steps []*step, owner string) error {
	if err := a.findAll(ctx, steps); err != nil {
		return err
	}
	var wrong []client.FieldError
	for _, s := range steps {
		if j := s.document.Job; j != nil {
			if !s.saysPaused {
				j.Paused = s.wasPaused
			}
			if taken := own(j, s.present.Job, owner); taken != "" {
				wrong = append(wrong, client.FieldError{
					Pointer: s.pointer, Path: "name", Detail: fmt.Sprintf("job %s belongs to the owner %q", s.result.Name, taken),
					Hint: "remove its label " + ownerLabel + " to take it over",
				})
			}
		}
		s.result.Result, s.result.Version = client.Created, 1
		if s.version > 0 {
			s.result.Result, s.result.Version = client.Changed, s.version+1
		}
	}
	if len(wrong) > 0 {
		return refuse(client.TypeConflict, "some jobs belong to somebody else, and nothing was changed").withErrors(wrong...)
	}
	inParts(len(steps), func(i int) {
		if s := steps[i]; s.version > 0 && job.Same(s.document, s.present) {
			s.result.Result, s.result.Version = client.Unchanged, s.version
		}
	})
	return nil
}

// findAll finds what is there of what the documents describe.
func (a *api) findAll(ctx context.Context, steps []*step) error {
	calendars, err := a.Store.Calendars(ctx)
	if err != nil {
		return err
	}
	pools, err := a.Store.Pools(ctx)
	if err != nil {
		return err
	}
	present := map[identity]job.Document{}
	for _, c := range calendars {
		present[identity{job.KindCalendar, c.FullName()}] = job.Document{Calendar: c}
	}
	for _, p := range pools {
		present[identity{job.KindPool, p.FullName()}] = job.Document{Pool: p}
	}
	var jobs []*step
	for _, s := range steps {
		if s.document.Job != nil {
			jobs = append(jobs, s)
		} else if d, ok := present[identity{s.result.Kind, s.result.Name}]; ok {
			s.present, s.version = d, d.Version()
		}
	}
	parts := slices.Collect(slices.Chunk(jobs, store.MaxBatch))
	failures := make([]error, len(parts))
	parallel.Each(len(parts), 1, func(i int) { failures[i] = a.findJobs(ctx, parts[i]) })
	return errors.Join(failures...)
}

// findJobs finds the jobs that are there, of so many as a store is asked for at a time.
func (a *api) findJobs(ctx context.Context, steps []*step) error {
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.result.Name
	}
	found, err := a.Store.JobsNamed(ctx, names)
	if err != nil {
		return err
	}
	for i, s := range steps {
		if found[i] != nil {
			d := found[i].Definition
			s.present, s.version, s.uid, s.wasPaused = job.Document{Job: d}, d.Version, d.UID, d.Paused
		}
	}
	return nil
}

// inParts does something for each of n documents, on all processors.
func inParts(n int, do func(i int)) {
	const least = 64 // documents that are worth a goroutine
	parallel.Each(n, least, do)
}

// own marks a job with its owner. Without one the mark stays as it is. It
// returns the owner that the job has, if that is another.
func own(j, present *job.Job, owner string) (taken string) {
	mark := ""
	if present != nil {
		mark = present.Labels[ownerLabel]
	}
	if owner != "" && mark != "" && mark != owner {
		return mark
	}
	if mark = cmp.Or(owner, mark); mark != "" {
		j.Labels = maps.Clone(j.Labels)
		if j.Labels == nil {
			j.Labels = map[string]string{}
		}
		j.Labels[ownerLabel] = mark
	}
	return ""
}

// pruneMax bounds what one call deletes: more is a mistake rather than a wish.
const pruneMax = 10_000

// prune finds the jobs of an owner that are not among the documents.
func (a *api) prune(ctx context.Context, steps []*step, owner string) ([]*step, error) {
	kept := map[string]bool{}
	for _, s := range steps {
		if s.document.Job != nil {
			kept[s.result.Name] = true
		}
	}
	var gone []*step
	q := store.JobQuery{Namespace: caller(ctx).Namespace, Labels: map[string]string{ownerLabel: owner}, Limit: store.MaxBatch}
	for {
		jobs, next, err := a.Store.ListJobs(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			if name := j.Definition.FullName(); !kept[name] {
				gone = append(gone, &step{
					present: job.Document{Job: j.Definition}, uid: j.Definition.UID, version: j.Definition.Version,
					result: client.ApplyResult{Kind: job.KindJob, Name: name, Result: client.Deleted},
				})
			}
		}
		if len(gone) > pruneMax {
			return nil, refuse(client.TypeTooMany, "more than %d jobs would be deleted", pruneMax)
		}
		if q.After = next; next == "" {
			return gone, nil
		}
	}
}

// writeAll writes what has changed, in an order in which each finds what it
// names, and deletes at last. Jobs come behind those that they follow: what has been
// written then follows only what has, so that no circle appears on the way to
// documents that have none.
func (a *api) writeAll(ctx context.Context, steps []*step) error {
	inOrder := slices.Clone(steps)
	slices.SortStableFunc(inOrder, func(x, y *step) int {
		return cmp.Compare(rank(x), rank(y))
	})
	inOrder = slices.DeleteFunc(inOrder, func(s *step) bool { return s.result.Result == client.Unchanged })
	written := 0
	for len(inOrder) > 0 {
		same := slices.IndexFunc(inOrder, func(s *step) bool { return rank(s) != rank(inOrder[0]) })
		if same < 0 {
			same = len(inOrder)
		}
		n, failed, err := a.writeSome(ctx, inOrder[:same])
		written += n
		if err != nil {
			return a.half(ctx, failed, written, err)
		}
		inOrder = inOrder[same:]
	}
	if written > 0 {
		a.sync(ctx)
	}
	return nil
}

// writersMax is how many batches of jobs are written at a time. What a store does
// before its transaction is done beside that of another.
const writersMax = 4

// writeSome writes documents that do not name each other, jobs in batches of which
// all are written or none. It returns how many it has written and, if that were not
// all, one that failed.
func (a *api) writeSome(ctx context.Context, steps []*step) (written int, failed *step, err error) {
	size := 1
	if s := steps[0]; s.document.Job != nil && s.result.Result != client.Deleted {
		size = store.PutMax
	}
	next := make(chan []*step) // closed when there is no more
	var mu sync.Mutex          // guards the results
	var group sync.WaitGroup
	for range min(writersMax, (len(steps)+size-1)/size) {
		group.Go(func() {
			for part := range next {
				one, e := a.write(ctx, part)
				mu.Lock()
				if e == nil {
					written += len(part)
				} else if err == nil {
					failed, err = one, e
				}
				mu.Unlock()
			}
		})
	}
	for part := range slices.Chunk(steps, size) {
		mu.Lock()
		stop := err != nil
		mu.Unlock()
		if stop {
			break
		}
		next <- part
	}
	close(next)
	group.Wait()
	return written, failed, err
}

func rank(s *step) int {
	if s.result.Result == client.Deleted {
		return math.MaxInt
	}
	return order[s.result.Kind] + s.depth
}

// write does one step, or those of a batch of jobs: all or none. It returns the one
// that failed.
func (a *api) write(ctx context.Context, part []*step) (failed *step, err error) {
	actor := actorOf(ctx)
	s := part[0]
	switch d := s.document; {
	case s.result.Result == client.Deleted:
		return s, a.Store.DeleteJob(ctx, store.DeleteJob{UID: s.uid, IfVersion: s.version, Actor: actor})
	case d.Calendar != nil:
		c, err := a.Store.PutCalendar(ctx, d.Calendar, s.version, actor)
		if err == nil {
			s.result.Version = c.Version
		}
		return s, err
	case d.Pool != nil:
		p, err := a.Store.PutPool(ctx, d.Pool, s.version, actor)
		if err == nil {
			s.result.Version = p.Version
		}
		return s, err
	}
	list := make([]store.PutJob, len(part))
	for i, s := range part {
		list[i] = store.PutJob{Definition: s.document.Job, IfVersion: s.version, Actor: actor}
		if s.document.Job.Paused && !s.wasPaused {
			list[i].Pause.By = actor
		}
	}
	jobs, err := a.Store.PutJobs(ctx, list)
	var refused *store.ItemError
	if errors.As(err, &refused) {
		return part[refused.Item], err
	}
	if err != nil {
		return s, err
	}
	for i, j := range jobs {
		part[i].result.Version = j.Definition.Version
	}
	return nil, nil
}

// half is the problem of a write that failed when others were made already.
func (a *api) half(ctx context.Context, s *step, written int, err error) error {
	p := a.asProblem(ctx, err)
	what := fmt.Sprintf("%s %s", s.result.Kind, s.result.Name)
	switch p.Type {
	case client.TypeConflict, client.TypeExists, client.TypeNotFound:
		p = refuse(client.TypeConflict, "%s was changed by somebody else at the same time", what)
	default:
		p.Detail = what + ": " + p.Detail
	}
	if written == 0 {
		return p.withHint("nothing was changed; apply again")
	}
	return p.withHint("%d documents were applied before; applying again does the rest", written)
}
