package service

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
	"github.com/belfry-cron/belfry/internal/node/garbage"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/sys/parallel"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// OwnerLabel is the label that marks a job as belonging to the files of an
// owner.
const OwnerLabel = "belfry/owner"

// applyStore is the part of a store that applying documents uses.
type applyStore interface {
	JobsNamed(ctx context.Context, names []string) ([]*store.Job, error)
	ListJobs(ctx context.Context, q store.JobQuery) (list []*store.Job, next string, err error)
	PutJobs(ctx context.Context, list []store.PutJob) ([]*store.Job, error)
	DeleteJob(ctx context.Context, d store.DeleteJob) error
	recallStore
	kindStore
	sourceStore
}

// Documents applies documents to the store.
type Documents struct {
	*base
	rules *rulebook
	store applyStore
}

// identity identifies the object of a document.
type identity struct {
	kind job.Kind
	name string
}

// order is the order of writing: jobs and windows name calendars, jobs pools, and hooks jobs.
var order = map[job.Kind]int{job.KindCalendar: 0, job.KindPool: 1, job.KindWindow: 2, job.KindChannel: 3, job.KindExecutors: 4, job.KindJob: 5, job.KindHook: 6}

// step is the change of one document.
type step struct {
	document job.Document
	pointer  string // its place in the request
	result   client.ApplyResult
	// present is the stored document, and version its version, 0 for none; uid is the id of
	// a job.
	present job.Document
	version int64
	uid     job.ID
	// saysPaused is set if a job sets paused. Otherwise its pause is kept: files do not
	// undo a manual pause.
	saysPaused bool
	wasPaused  bool
	// depth is the length of the longest chain of upstream jobs.
	depth int
	// follows are the full names of the upstream jobs, and absent the unknown ones.
	follows []string
	absent  map[string]bool
}

// Apply creates and changes documents to match documents. All documents are
// checked before the first is written. Jobs are written in batches: a store that fails in
// the middle keeps some of them, and applying again does the rest.
func (d *Documents) Apply(ctx context.Context, who Caller, request client.Apply) (client.Applied, error) {
	right := Define
	if request.DryRun {
		right = Read // it shows nothing else
	}
	if err := who.May(right); err != nil {
		return client.Applied{}, err
	}
	if request.Prune && request.Owner == "" {
		return client.Applied{}, WrongField("owner", phrase.Missing, phrase.PruneNeedsOwner)
	}
	if request.Source != nil {
		if err := d.checkSource(ctx, who, &request); err != nil {
			return client.Applied{}, err
		}
		if isToldOnly(request.Source) {
			return client.Applied{DryRun: request.DryRun, Results: []client.ApplyResult{}}, d.told(ctx, who, &request)
		}
	}
	const many = 100 // the fewest documents for it
	if len(request.Documents) >= many {
		defer garbage.NeedRoom()()
	}
	steps, wrong, err := decodeAll(request.Documents)
	if err != nil {
		return client.Applied{}, err
	}
	for _, s := range steps {
		if err := who.mayName(right, s.document, s.pointer); err != nil {
			return client.Applied{}, cmp.Or(refuseAll(wrong), err)
		}
	}
	if err := d.checkAll(ctx, steps, wrong); err != nil {
		return client.Applied{}, err
	}
	if err := d.compareAll(ctx, steps, request.Owner); err != nil {
		return client.Applied{}, err
	}
	if request.Prune {
		pruned, err := d.prune(ctx, who, right, steps, request.Owner)
		if err != nil {
			return client.Applied{}, err
		}
		steps = append(steps, pruned...)
	}
	warnOfAbsent(steps)
	if err := d.warnOfBarred(ctx, steps); err != nil {
		return client.Applied{}, err
	}
	if request.Source == nil {
		if err := d.warnOfSources(ctx, steps); err != nil {
			return client.Applied{}, err
		}
	}
	if request.Diff {
		if err := diffAll(steps); err != nil {
			return client.Applied{}, err
		}
	}
	if !request.DryRun {
		if err := d.carryOut(ctx, who, steps, &request); err != nil {
			return client.Applied{}, err
		}
	}
	applied := client.Applied{DryRun: request.DryRun, Results: make([]client.ApplyResult, len(steps))}
	for i, s := range steps {
		applied.Results[i] = s.result
	}
	return applied, nil
}

// carryOut writes the changes, and of which commit the jobs are by then.
func (d *Documents) carryOut(ctx context.Context, who Caller, steps []*step, request *client.Apply) error {
	ctx, err := grouped(ctx)
	if err != nil {
		return err
	}
	if err := d.writeAll(ctx, who, steps); err != nil {
		return err
	}
	if err := d.nameUnreleased(ctx, steps); err != nil || request.Source == nil {
		return err
	}
	return d.appliedSource(ctx, who, request.Owner, request.Source, steps)
}

// warnOfAbsent warns of jobs that follow missing ones, or ones that are deleted. They may be
// created later.
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

// warningsOf returns allowed but probably unintended settings in a document.
func warningsOf(d job.Document, rules []job.Option) (list []string) {
	for _, w := range d.Warnings(rules...) {
		list = append(list, job.Problem{Path: w.Path, Message: w.Message, Hint: w.Hint}.Error())
	}
	return list
}

func absentWarning(up string) string {
	return reason.Problem(job.Problem{Path: "schedule.on"}, phrase.NoUpstream.Of(up)).Error()
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

// decodeAll reads the documents, each as far as it can be read, and collects the mistakes of
// all.
func decodeAll(raw []client.Document) (steps []*step, wrong *Error, err error) {
	drafts := make([]Draft, len(raw))
	failures := make([]error, len(raw))
	pointerTo := func(i int) string { return "/documents/" + strconv.Itoa(i) }
	inParts(len(raw), func(i int) { drafts[i], failures[i] = ReadDraft(raw[i].RawMessage, pointerTo(i)) })
	steps = make([]*step, 0, len(raw))
	wrong = &Error{}
	seen := make(map[identity]int, len(raw))
	for i, d := range drafts {
		pointer := pointerTo(i)
		var e *Error
		if err := failures[i]; errors.As(err, &e) {
			wrong.addMistakes(e)
			continue
		} else if err != nil {
			return nil, nil, err
		}
		if len(d.Unread) > 0 {
			wrong.addProblems(d.Unread, pointer)
			if d.Kind == "" {
				continue
			}
		}
		id := identity{d.Kind, d.FullName()}
		if first, twice := seen[id]; twice && d.IsNamed() {
			wrong.withErrors(mistakeAt(pointer, "name", phrase.DefinedTwice.Of(string(d.Kind), d.FullName()), phrase.DocumentIsFirst.Of(first+1)))
			continue
		}
		seen[id] = i
		steps = append(steps, &step{
			document: d.Document, pointer: pointer, saysPaused: d.Says("paused"),
			result: client.ApplyResult{Kind: d.Kind, Name: d.FullName()},
		})
	}
	return steps, wrong, nil
}

// refuseAll returns the error of mistakes in several documents, or nil.
func refuseAll(wrong *Error) error {
	switch n := wrong.mistakes(); n {
	case 0:
		return nil
	case 1:
		wrong.Detail = reason.Say(phrase.DocumentsMistake)
	default:
		wrong.Detail = reason.Say(phrase.DocumentsMistakes.Of(n))
	}
	wrong.Type = client.TypeInvalid
	return wrong
}

// checkAll adds the mistakes that the rules find in the documents, and refuses them if there
// are any. Jobs may name calendars that come with them.
func (d *Documents) checkAll(ctx context.Context, steps []*step, wrong *Error) error {
	stored, err := d.rules.calendars(ctx)
	if err != nil {
		return err
	}
	sent := map[string]*job.Calendar{}
	for _, s := range steps {
		if s.document.Calendar != nil {
			sent[s.result.Name] = s.document.Calendar
		}
	}
	rules, err := d.rules.with(ctx, func(namespace, name string) *job.Calendar {
		if c := sent[namespace+"/"+name]; c != nil {
			return c
		}
		return stored(namespace, name)
	})
	if err != nil {
		return err
	}
	failures := make([]error, len(steps))
	inParts(len(steps), func(i int) {
		s := steps[i]
		if failures[i] = check(s.document, rules); failures[i] != nil {
			return
		}
		s.result.Warnings = append(s.result.Warnings, warningsOf(s.document, rules)...)
		s.document = s.document.WithoutSource()
	})
	for i, s := range steps {
		var mistakes job.Problems
		if err := failures[i]; errors.As(err, &mistakes) {
			wrong.addProblems(mistakes, s.pointer)
		} else if err != nil {
			return err
		}
	}
	ups := d.upstreams(ctx, steps)
	if err := ups.cycles(steps, wrong); err != nil {
		return err
	}
	if err := refuseAll(wrong); err != nil {
		return err
	}
	return ups.tell(steps)
}

// compareAll finds the changes.
func (d *Documents) compareAll(ctx context.Context, steps []*step, owner string) error {
	if err := d.findAll(ctx, steps); err != nil {
		return err
	}
	foreign := Refuse(client.TypeConflict, phrase.OtherOwner)
	for _, s := range steps {
		if j := s.document.Job; j != nil {
			if !s.saysPaused {
				j.Paused = s.wasPaused
			}
			if taken := own(j, s.present.Job, owner); taken != "" {
				foreign.withErrors(fieldError(client.FieldError{Pointer: s.pointer, Path: "name"},
					reason.Say(phrase.BelongsToOwner.Of(s.result.Name, phrase.Quoted(taken))), reason.Say(phrase.RemoveLabel.Of(OwnerLabel))))
			}
		}
		s.result.Result, s.result.Version = client.Created, 1
		if s.version > 0 {
			s.result.Result, s.result.Version = client.Changed, s.version+1
		}
	}
	if len(foreign.Errors) > 0 {
		return foreign
	}
	inParts(len(steps), func(i int) {
		if s := steps[i]; s.version > 0 && job.Same(s.document, s.present) {
			s.result.Result, s.result.Version = client.Unchanged, s.version
		}
	})
	return nil
}

// findAll finds the stored versions of the documents.
func (d *Documents) findAll(ctx context.Context, steps []*step) error {
	sets, err := d.store.Documents(ctx, store.DocumentKinds...)
	if err != nil {
		return err
	}
	present := map[identity]job.Document{}
	for _, set := range sets {
		present[identity{set.Kind, set.FullName()}] = set
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
	parallel.Each(len(parts), 1, func(i int) { failures[i] = d.findJobs(ctx, parts[i]) })
	return errors.Join(failures...)
}

// findJobs finds the stored versions of the jobs, in batches of the store's limit.
func (d *Documents) findJobs(ctx context.Context, steps []*step) error {
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.result.Name
	}
	found, err := d.store.JobsNamed(ctx, names)
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
	const least = 64 // the fewest documents for a goroutine
	parallel.Each(n, least, do)
}

// own marks a job with its owner. Without an owner the mark is kept. It returns the job's
// current owner, if that differs.
func own(j, present *job.Job, owner string) (taken string) {
	mark := ""
	if present != nil {
		mark = present.Labels[OwnerLabel]
	}
	if owner != "" && mark != "" && mark != owner {
		return mark
	}
	if mark = cmp.Or(owner, mark); mark != "" {
		j.Labels = maps.Clone(j.Labels)
		if j.Labels == nil {
			j.Labels = map[string]string{}
		}
		j.Labels[OwnerLabel] = mark
	}
	return ""
}

// pruneMax bounds the deletions of one call: more is probably a mistake.
const pruneMax = 10_000

// prune finds the jobs of an owner that are not among the documents.
func (d *Documents) prune(ctx context.Context, who Caller, right Right, steps []*step, owner string) ([]*step, error) {
	names := map[string]bool{}
	for _, s := range steps {
		if s.document.Job != nil {
			names[s.result.Name] = true
		}
	}
	var gone []*step
	of, err := who.within(right, "")
	if err != nil {
		return nil, err
	}
	q := store.JobQuery{Labels: map[string]string{OwnerLabel: owner}, Limit: store.MaxBatch}
	for {
		jobs, next, err := of.jobs(ctx, d.store, q)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			if name := j.Definition.FullName(); !names[name] {
				gone = append(gone, &step{
					present: job.Document{Job: j.Definition}, uid: j.Definition.UID, version: j.Definition.Version,
					result: client.ApplyResult{Kind: job.KindJob, Name: name, Result: client.Deleted},
				})
			}
		}
		if len(gone) > pruneMax {
			return nil, Refuse(client.TypeTooMany, phrase.TooManyDeleted.Of(pruneMax))
		}
		if q.After = next; next == "" {
			return gone, nil
		}
	}
}

// writeAll writes changed documents in the order of their references, and deletes last.
// Jobs come after the jobs that they follow, so that no temporary cycle appears.
func (d *Documents) writeAll(ctx context.Context, who Caller, steps []*step) error {
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
		n, failed, err := d.writeSome(ctx, who, inOrder[:same])
		written += n
		if err != nil {
			return half(failed, written, err)
		}
		inOrder = inOrder[same:]
	}
	if written > 0 {
		d.sync(ctx)
	}
	return nil
}

// writersMax is the number of batches of jobs that are written at a time. The work of a
// store before its transaction overlaps the transaction of another batch.
const writersMax = 4

// writeSome writes documents without references among them, jobs in all-or-nothing batches.
// It returns the number written and, if some were not, one that failed.
func (d *Documents) writeSome(ctx context.Context, who Caller, steps []*step) (written int, failed *step, err error) {
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
				one, e := d.write(ctx, who, part)
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

// nameUnreleased adds to the results the runs that may still start under the definitions
// before.
func (d *Documents) nameUnreleased(ctx context.Context, steps []*step) error {
	before, of := map[job.ID]int64{}, map[job.ID]*step{}
	for _, s := range steps {
		if !s.uid.IsZero() && s.result.Result != client.Unchanged {
			before[s.uid], of[s.uid] = s.version, s
		}
	}
	_, rest, err := unreleased(ctx, d.store, before)
	for i := range rest {
		s := of[rest[i].JobUID]
		s.result.MayStart = append(s.result.MayStart, activeRun(&rest[i]))
	}
	return err
}

func rank(s *step) int {
	if s.result.Result == client.Deleted {
		return math.MaxInt
	}
	return order[s.result.Kind] + s.depth
}

// write does one step, or the steps of a batch of jobs, all or none. It returns the failed one.
func (d *Documents) write(ctx context.Context, who Caller, part []*step) (failed *step, err error) {
	actor := who.Name
	s := part[0]
	switch {
	case s.result.Result == client.Deleted:
		return s, d.store.DeleteJob(ctx, store.DeleteJob{UID: s.uid, IfVersion: s.version, Actor: actor})
	case s.document.Job == nil:
		put, err := putOfKind(ctx, d.store, s.document, s.version, actor)
		if err == nil {
			s.result.Version = put.Version()
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
	jobs, err := d.store.PutJobs(ctx, list)
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

// half is the error of a write that failed after others had succeeded.
func half(s *step, written int, err error) error {
	failed := *ErrorOf(err)
	e := &failed
	switch e.Type {
	case client.TypeConflict, client.TypeExists, client.TypeNotFound:
		e = Refuse(client.TypeConflict, phrase.ChangedMeanwhile.Of(string(s.result.Kind), s.result.Name))
	default:
		e.Detail = reason.Because.Of(job.Text(fmt.Sprintf("%s %s", s.result.Kind, s.result.Name)), e.Detail)
	}
	if written == 0 {
		return e.hinted(phrase.ApplyAgain)
	}
	return e.hinted(phrase.ApplyRest.Of(written))
}
