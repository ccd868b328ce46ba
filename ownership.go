package belfry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// ownership keeps the declared jobs in the store equal to the code. The labels of a pool record the
// deciding version of the program: see docs/decisions/0030-jobs-of-programs.md.
type ownership struct {
	s         *Scheduler
	service   *service.Service
	store     store.Store
	documents []client.Document
	code      string // the version of the program: a hash of the documents

	declares bool      // this version is the latest
	looked   bool      // evaluate has run before
	absent   time.Time // since when no later version had a live instance, by this clock; zero: one is live
}

const (
	// evaluateEvery is how often an instance checks whether its version decides.
	evaluateEvery = 5 * time.Second
	// absentFor is the time without a live instance of the latest version after which an
	// earlier one decides: longer than an instance takes to restart.
	absentFor = 30 * time.Second
	// againAfter is the delay before the latest version declares again: an instance of the
	// previous version may have been writing at the same time. After that it declares at
	// intervals of declareEvery, since jobs may be changed by hand.
	againAfter   = 10 * time.Second
	declareEvery = 5 * time.Minute
	// versionsMax is how many versions are remembered: more than are deployed side by side.
	versionsMax = 32
	// contestsMax bounds how often an instance retries to record its version while others do the
	// same.
	contestsMax = 100

	ownerLabel  = "belfry/owner"
	codeLabel   = "belfry/code"
	codeLength  = 16 // characters of a hash
	versionMark = "code."
)

// code returns the documents of the declared jobs, and the version of the program.
func (s *Scheduler) code() (documents []client.Document, code string) {
	sum := sha256.New()
	for _, d := range s.sortedJobs() {
		text := job.AppendJSON(nil, job.Document{Kind: job.KindJob, Job: &d.job})
		documents = append(documents, client.Document{RawMessage: text})
		sum.Write(text)
		sum.Write([]byte{0})
	}
	return documents, hex.EncodeToString(sum.Sum(nil))[:codeLength]
}

// sessionLabels returns the labels that show the version of this node to other instances.
func (s *Scheduler) sessionLabels() map[string]string {
	if s.settings.handlersOnly {
		return s.settings.labels
	}
	_, code := s.code()
	return merged(s.settings.labels, map[string]string{ownerLabel: s.settings.owner, codeLabel: code})
}

// caller returns the identity of the program for calls of the service.
func (s *Scheduler) caller() service.Caller {
	return service.Caller{Name: "program " + s.settings.owner, Role: store.RoleAdmin, Namespace: s.settings.namespace}
}

func (s *Scheduler) ownership(svc *service.Service) *ownership {
	o := &ownership{s: s, service: svc, store: s.store}
	o.documents, o.code = s.code()
	return o
}

// start declares the jobs for the first time, if this version decides.
func (o *ownership) start(ctx context.Context) error {
	if o.s.settings.handlersOnly {
		return nil
	}
	if err := o.evaluate(ctx); err != nil {
		return err
	}
	if !o.declares {
		o.s.settings.log.Info("a later version of this program declares its jobs; this one leaves them as they are", "owner", o.s.settings.owner, "version", o.code)
		return nil
	}
	return o.declare(ctx)
}

// run restores the declared jobs until ctx ends.
func (o *ownership) run(ctx context.Context) {
	if o.s.settings.handlersOnly {
		return
	}
	ticker := time.NewTicker(evaluateEvery)
	defer ticker.Stop()
	next := o.s.settings.now().Add(againAfter)
	if o.s.isAlone(ctx) { // no other instance can have changed jobs
		next = o.s.settings.now().Add(declareEvery)
	}
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		did := o.declares
		err := o.evaluate(ctx)
		now := o.s.settings.now()
		begins := o.declares && !did
		if err == nil && o.declares && (begins || !now.Before(next)) {
			if err = o.declare(ctx); err == nil {
				next = now.Add(declareEvery)
				if begins {
					next = now.Add(againAfter)
				}
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			o.s.settings.log.Error("cannot bring the declared jobs into the store; retrying", "owner", o.s.settings.owner, "error", err)
		case err == nil && begins:
			o.s.settings.log.Warn("this version of the program declares its jobs: no instance of the later one is live", "owner", o.s.settings.owner, "version", o.code)
		case err == nil && did && !o.declares:
			o.s.settings.log.Info("a later version of this program declares its jobs; this one leaves them as they are", "owner", o.s.settings.owner, "version", o.code)
		}
		failing = err != nil
	}
}

// declare writes the jobs that differ from their declarations, and deletes undeclared jobs
// of the owner.
func (o *ownership) declare(ctx context.Context) error {
	_, err := o.service.Documents.Apply(ctx, o.s.caller(), client.Apply{Documents: o.documents, Owner: o.s.settings.owner, Prune: true})
	if err != nil {
		return fmt.Errorf("bring the declared jobs into the store: %w", outside(err))
	}
	return nil
}

// evaluate determines whether this version of the program decides, and records it in the store
// when it is new or takes over.
func (o *ownership) evaluate(ctx context.Context) error {
	for range contestsMax {
		record, err := o.record(ctx)
		if err != nil {
			return err
		}
		seen := versionsOf(record)
		latest := 0
		for _, n := range seen {
			latest = max(latest, n)
		}
		mine, known := seen[o.code]
		takes := !known
		if known && mine < latest {
			if takes, err = o.outlives(ctx, seen, mine); err != nil {
				return err
			}
		}
		if !takes {
			o.declares, o.looked = known && mine == latest, true
			return nil
		}
		seen[o.code] = latest + 1
		switch err := o.note(ctx, record, seen); {
		case err == nil:
			o.declares, o.looked, o.absent = true, true, time.Time{}
			return nil
		case !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrExists):
			return fmt.Errorf("note the version of the program: %w", err)
		}
	}
	return fmt.Errorf("note the version of the program: others did so %d times in between", contestsMax)
}

// outlives reports whether no instance of a later version has been live for long enough.
func (o *ownership) outlives(ctx context.Context, seen map[string]int, mine int) (bool, error) {
	sessions, err := o.store.Sessions(ctx)
	if err != nil {
		return false, err
	}
	now, err := o.store.Now(ctx)
	if err != nil {
		return false, err
	}
	others, later := false, false
	for i := range sessions {
		session := &sessions[i]
		if session.Labels[ownerLabel] != o.s.settings.owner || !session.Live(now) {
			continue
		}
		others = true
		if n, known := seen[session.Labels[codeLabel]]; !known || n > mine {
			later = true
		}
	}
	if later {
		o.absent = time.Time{}
		return false, nil
	}
	if !others && !o.looked {
		return true, nil // all had stopped: a rollback, not a rolling deployment
	}
	clock := o.s.settings.now()
	if o.absent.IsZero() {
		o.absent = clock
	}
	return clock.Sub(o.absent) >= absentFor, nil
}

// recordName returns the name of the pool with the versions of an owner.
func recordName(owner string) string {
	slug := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(owner))
	const most = 80 // of the 128 characters of a name
	sum := sha256.Sum256([]byte(owner))
	return "versions-of" + strings.TrimRight("-"+slug[max(0, len(slug)-most):], "-") + "-" + hex.EncodeToString(sum[:4])
}

// record returns the pool whose labels keep the versions, nil before the first version.
func (o *ownership) record(ctx context.Context) (*job.Pool, error) {
	pools, err := o.store.Documents(ctx, job.KindPool)
	if err != nil {
		return nil, err
	}
	name := recordName(o.s.settings.owner)
	for _, d := range pools {
		if d.Pool.Name == name && d.Pool.Namespace == o.s.settings.namespace {
			return d.Pool, nil
		}
	}
	return nil, nil
}

// versionsOf returns the versions in a record, numbered in the order in which they first
// appeared.
func versionsOf(record *job.Pool) map[string]int {
	seen := map[string]int{}
	if record == nil {
		return seen
	}
	for label, text := range record.Labels {
		code, is := strings.CutPrefix(label, versionMark)
		if n, err := strconv.Atoi(text); is && err == nil {
			seen[code] = n
		}
	}
	return seen
}

// note writes the versions, unless another instance has done so since the record was read.
func (o *ownership) note(ctx context.Context, record *job.Pool, seen map[string]int) error {
	byNumber := slices.SortedFunc(maps.Keys(seen), func(a, b string) int { return cmp.Compare(seen[b], seen[a]) })
	pool := &job.Pool{
		Namespace: o.s.settings.namespace, Name: recordName(o.s.settings.owner), Slots: job.Slots{Size: 1},
		Description: "Not a pool of slots: the versions of the program " + o.s.settings.owner + " in the order of their first start. The highest declares its jobs.",
		Labels:      map[string]string{ownerLabel: o.s.settings.owner},
	}
	for _, code := range byNumber[:min(len(byNumber), versionsMax)] {
		pool.Labels[versionMark+code] = strconv.Itoa(seen[code])
	}
	var version int64
	if record != nil {
		version = record.Version
	}
	_, err := o.store.PutDocument(ctx, job.Document{Pool: pool}, version, o.s.caller().Name)
	return err
}
