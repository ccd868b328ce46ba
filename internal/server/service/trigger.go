package service

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/notification"
	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Made is the result of a request for a run: the run, and whether this request has created
// it or an earlier one with the same key.
type Made struct {
	Run client.Run
	New bool
}

// Start runs a job now. Requests with the same non-empty key create one run in 24 hours;
// a repeated key with other parameters or from another caller is refused.
func (s *Runs) Start(ctx context.Context, who Caller, name Name, request client.RunRequest, key string) (Made, error) {
	return s.StartWith(ctx, who, name, request, key, nil)
}

// StartWith is Start with metadata, which the run passes on to its followers. A repeated
// request may have other metadata.
func (s *Runs) StartWith(ctx context.Context, who Caller, name Name, request client.RunRequest, key string, metadata map[string]string) (Made, error) {
	return s.start(ctx, who, name, request, key, metadata, job.ID{})
}

// start is StartWith with the id of the new run, zero for any.
func (s *Runs) start(ctx context.Context, who Caller, name Name, request client.RunRequest, key string, metadata map[string]string, id job.ID) (Made, error) {
	j, item, err := s.asked(ctx, who, name, request, metadata)
	if err != nil {
		return Made{}, err
	}
	item.Key, item.ID = cmp.Or(item.Key, key), id
	made, err := s.trigger(ctx, who, j, item)
	if err == nil && request.Notify != nil {
		err = s.await(ctx, name.Namespace, made.Run, request.Notify)
	}
	return made, err
}

// asked checks a request for a run, and returns its job and the request to the store, which has a key if
// the same requests make one run.
func (s *Runs) asked(ctx context.Context, who Caller, name Name, request client.RunRequest, metadata map[string]string) (j *store.Job, item store.TriggerItem, err error) {
	if j, err = s.jobs.find(ctx, who, Operate, name); err != nil {
		return j, item, err
	}
	if err := CheckParams(j.Filled, request.Params, nil); err != nil {
		return j, item, err
	}
	if request.At.Sub(s.now()) > aheadMax {
		return j, item, WrongField("at", phrase.TooFarAhead)
	}
	if request.At.After(s.now()) {
		item.Due = request.At
	}
	item.Params = request.Params
	if request.Executor != "" || len(metadata) > 0 {
		if item.Params = maps.Clone(item.Params); item.Params == nil {
			item.Params = map[string]string{}
		}
	}
	if request.Notify != nil {
		if err := s.checkNotice(ctx, who, name, request.Notify); err != nil {
			return j, item, err
		}
	}
	if request.Executor != "" {
		if item.Params[job.ExecutorParam], err = s.executorFor(ctx, j.Filled, request.Executor); err != nil {
			return j, item, err
		}
	}
	for name, value := range metadata {
		item.Params[job.MetadataPrefix+name] = value
	}
	if err := s.chooseInterval(&item, &request); err != nil {
		return j, item, err
	}
	for path, same := range map[string]*client.Sameness{"unique": request.Unique, "debounce": request.Debounce} {
		if same == nil {
			continue
		}
		if err := sameness(j.Filled, path, same, &item); err != nil {
			return j, item, err
		}
		if path == "debounce" {
			place := j.Filled.Nodes()
			if request.Unique != nil || !request.At.IsZero() || place.Shards > 0 || place.Strategy == job.StrategyBroadcast || j.Filled.SplitBy() != "" {
				return j, item, WrongField(path, phrase.NotTogether, phrase.LeaveOneOut)
			}
			item.KeyFor, item.PutOff = store.KeyLife, time.Duration(same.For)
		}
	}
	return j, item, nil
}

// chooseInterval gives a request the interval of data that it has chosen.
func (s *Runs) chooseInterval(item *store.TriggerItem, request *client.RunRequest) error {
	if request.Scheduled.IsZero() && request.Previous.IsZero() {
		return nil
	}
	until := cmp.Or(request.Scheduled, s.now())
	switch {
	case until.After(s.now()):
		return WrongField("scheduled", phrase.InFuture, phrase.LeaveOutForNow)
	case !request.Previous.IsZero() && !request.Previous.Before(until):
		return WrongField("previous", phrase.NotBeforeScheduled.Of(phrase.MomentOf(until)))
	case request.Debounce != nil:
		return WrongField("debounce", phrase.NotTogether, phrase.LeaveOneOut)
	}
	item.Scheduled = request.Scheduled
	if !request.Previous.IsZero() {
		item.Params = job.WithPrevious(item.Params, request.Previous)
	}
	return nil
}

// checkNotice refuses a webhook for a run that cannot be delivered. The right to run a job brings no
// address that this server would call.
func (s *Runs) checkNotice(ctx context.Context, who Caller, name Name, to *client.RunNotice) error {
	if err := who.MayIn(Define, name.Namespace); err != nil {
		return err
	}
	if u, err := url.Parse(to.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return WrongField("notify.url", phrase.NotAddress.Of(phrase.Quoted(to.URL)), phrase.Example.Of("https://ci.example.org/belfry"))
	}
	if to.Secret != "" {
		if !job.IsSecretName(to.Secret) {
			return WrongField("notify.secret", phrase.NotSecretName.Of(phrase.Quoted(to.Secret)), phrase.SecretNameForm.Of(job.SecretNameMax))
		}
		if why := s.rules.unknownSecret(ctx)(name.Namespace, to.Secret); !why.IsZero() {
			return Wrong(fieldError(client.FieldError{Pointer: "/notify/secret", Path: "notify.secret"}, why, reason.Say(phrase.SetSecret.Of(to.Secret))))
		}
	}
	list, err := s.store.Notes(ctx, notification.RunNotes, "", notification.AwaitedMax)
	if err == nil && len(list) >= notification.AwaitedMax {
		err = Refuse(client.TypeConflict, phrase.AwaitedFull.Of(notification.AwaitedMax))
	}
	return err
}

// await stores that the end of a run, with all its shards, is reported to a webhook. A repeated request
// stores nothing new.
func (s *Runs) await(ctx context.Context, namespace string, run client.Run, to *client.RunNotice) error {
	a := notification.Awaited{Namespace: namespace, To: job.WebhookService{URL: to.URL}}
	if to.Secret != "" {
		a.To.Secret = &job.Secret{Name: to.Secret}
	}
	for _, a.Run = range append([]job.ID{run.ID}, run.Others...) {
		text, err := json.Marshal(a)
		if err != nil {
			return err
		}
		if _, err := s.store.PutNote(ctx, store.Note{Name: notification.RunNotes + a.Run.String(), Text: text}); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}

// sameForMax bounds how long requests count as the same: as an idempotency key.
const sameForMax = job.Duration(store.KeyLife)

// sameness sets the key of a request, which is that of all requests that are the same.
func sameness(j *job.Job, path string, same *client.Sameness, item *store.TriggerItem) error {
	if same.For < job.Duration(time.Second) || same.For > sameForMax {
		return WrongField(path+".for", phrase.TimeOfSame, phrase.TimeOfSameForm.Of(phrase.Span(sameForMax.InWords())))
	}
	by := same.By
	if len(by) == 0 {
		by = slices.Collect(maps.Keys(j.Params))
	}
	slices.Sort(by)
	sum := sha256.New()
	for _, name := range by {
		param, known := j.Params[name]
		if !known {
			return WrongField(path+".by", phrase.NameNotDeclared.Of(phrase.Quoted(name)), phrase.DeclaredAre.Of(slices.Sorted(maps.Keys(j.Params))))
		}
		value, given := item.Params[name]
		if !given {
			value = param.Default
		}
		fmt.Fprintf(sum, "%q=%q\n", name, value)
	}
	if !item.Scheduled.IsZero() || item.Params[job.PreviousParam] != "" {
		fmt.Fprintf(sum, "%d %s\n", item.Scheduled.UnixNano(), item.Params[job.PreviousParam])
	}
	item.Key, item.KeyFor = fmt.Sprintf("%s %x", path, sum.Sum(nil)[:16]), time.Duration(same.For)
	return nil
}

// paramMax is the longest value of a parameter: it must fit into the
// environment of a command.
const paramMax = 64 << 10

// CheckParams reports parameters that a job does not declare, wrong values, and values that are missing: neither in
// params nor in kept, which a run has besides.
func CheckParams(j *job.Job, params, values map[string]string) error {
	wrong := Refuse(client.TypeInvalid, phrase.ParamsDoNotFit.Of(j.FullName()))
	at := func(name string, detail, hint job.Reason) {
		wrong.withErrors(fieldError(client.FieldError{Pointer: "/params" + Pointer("["+strconv.Quote(name)+"]"), Path: "params." + name}, detail, hint))
	}
	declared := slices.Sorted(maps.Keys(j.Params))
	for _, name := range slices.Sorted(maps.Keys(params)) {
		param, known := j.Params[name]
		switch {
		case !known && len(declared) == 0:
			at(name, reason.Say(phrase.TakesNoParams), job.Reason{})
		case !known:
			at(name, reason.Say(phrase.NotDeclared), reason.Say(phrase.DeclaredAre.Of(declared)))
		case len(params[name]) > paramMax:
			at(name, reason.Say(phrase.HasBytes.Of(len(params[name]), paramMax)), job.Reason{})
		case strings.Contains(params[name], "\x00"):
			at(name, reason.Say(phrase.HasNUL), job.Reason{})
		default:
			if why, hint := param.Wrong(params[name]); !why.IsZero() {
				at(name, why, hint)
			}
		}
	}
	for _, name := range declared {
		param := j.Params[name]
		_, given := params[name]
		if why, hint := param.Wrong(values[name]); param.Required && !given && !why.IsZero() {
			at(name, why, hint)
		}
	}
	if len(wrong.Errors) == 0 {
		return nil
	}
	return wrong
}

// trigger creates the runs of a manual request, one for each shard, placed on live nodes,
// and returns the first.
func (s *Runs) trigger(ctx context.Context, who Caller, j *store.Job, like store.TriggerItem) (Made, error) {
	if err := startable(j); err != nil {
		return Made{}, err
	}
	live, err := s.liveSessions(ctx)
	if err != nil {
		return Made{}, err
	}
	scheduled := cmp.Or(like.Scheduled, s.now())
	first := like.ID
	if first.IsZero() {
		if first, err = s.newID(); err != nil {
			return Made{}, err
		}
	}
	if like.Key == "" {
		like.Key = first.String()
	}
	request, err := s.placing(ctx, j)
	if err != nil {
		return Made{}, err
	}
	if like.Params[job.ExecutorParam] != "" {
		request.Split, request.Place.Shards = 0, 0 // one executor does all of it
	}
	request.Scheduled, request.Sequence = scheduled, int(first[15])
	placed, _ := placement.Runs(request, live)
	if like.Shards > 0 {
		// Only one share is requested.
		one := placed[like.Shard%len(placed)]
		placed = []placement.Placed{{Session: one.Session, Node: one.Node, Shard: like.Shard, Shards: like.Shards}}
	}
	items := make([]store.TriggerItem, len(placed))
	for i, p := range placed {
		items[i] = like
		items[i].ID, items[i].Job, items[i].Kind, items[i].Actor = first, j.Definition.UID, job.RunByHand, who.Name
		items[i].Session, items[i].Node, items[i].Shard, items[i].Shards = p.Session, p.Node, p.Shard, p.Shards
		if i > 0 {
			if items[i].ID, err = s.newID(); err != nil {
				return Made{}, err
			}
		}
	}
	var outcomes []store.TriggerOutcome
	for part := range slices.Chunk(items, store.MaxBatch) {
		results, err := s.store.Trigger(ctx, part)
		if err != nil {
			return Made{}, err
		}
		outcomes = append(outcomes, results...)
	}
	var result Made
	var others []job.ID
	for i, outcome := range outcomes {
		if outcome.Err != nil {
			return Made{}, noJob(nameOf(j.Definition))
		}
		result.New = result.New || outcome.Made
		if i > 0 {
			others = append(others, outcome.Run)
		}
	}
	if result.Run, err = s.run(ctx, outcomes[0].Run); err != nil {
		return Made{}, err
	}
	result.Run.Others = others
	windows, err := s.jobs.rules.windows(ctx)
	if err != nil {
		return Made{}, err
	}
	result.Run.Window = openingOver(windows, j, s.now())
	if !outcomes[0].Made && like.KeyFor == 0 {
		return result, s.sameRequest(ctx, who, j, &like, &result.Run)
	}
	return result, nil
}

// sameRequest refuses a repeated key whose request differs from the one that created the
// run.
func (s *Runs) sameRequest(ctx context.Context, who Caller, j *store.Job, like *store.TriggerItem, run *client.Run) error {
	var differs phrase.Text
	switch {
	case !maps.Equal(withoutMetadata(like.Params), withoutMetadata(run.Params)):
		differs = phrase.WithOtherParams
	case like.Params[job.ExecutorParam] != "" && like.Params[job.ExecutorParam] != run.Executor:
		differs = phrase.ForOtherExecutor
	case like.Again != run.RetryOf, like.Flow != nil && !sameSteps(like.Flow, run.Retried):
		differs = phrase.ForOtherRun
	case !job.PreviousOf(like.Params).Equal(run.Previous):
		differs = phrase.ForOtherInterval
	case !like.Scheduled.IsZero() && (!like.Scheduled.Equal(run.Scheduled) || like.Shards > 0 && like.Shard != run.Shard):
		differs = phrase.ForOtherRun
	default:
		actor, err := s.starterOf(ctx, j, run)
		if err != nil {
			return err
		}
		if actor != "" && actor != who.Name {
			differs = phrase.ByOtherCaller
		}
	}
	if differs.IsZero() {
		return nil
	}
	return WrongParameter("Idempotency-Key", phrase.KeyWasUsed.Of(differs), phrase.NewKeyEach)
}

// withoutMetadata returns the parameters alone.
func withoutMetadata(params map[string]string) map[string]string {
	params = maps.Clone(job.ShownParams(params))
	maps.DeleteFunc(params, func(name, _ string) bool { return strings.HasPrefix(name, job.MetadataPrefix) })
	return params
}

// clockSlack is the largest difference between the clock of a node, which is in the id of a
// run, and the clock of the store, which is in the audit.
const clockSlack = time.Minute

// starterOf returns the caller that started a run by hand, from the audit; "" if it has expired.
func (s *Runs) starterOf(ctx context.Context, j *store.Job, run *client.Run) (string, error) {
	at := run.ID.Time()
	q := store.AuditQuery{Object: j.Definition.FullName(), From: at.Add(-clockSlack), To: at.Add(clockSlack), Limit: store.MaxBatch}
	for range partsMax {
		records, next, err := s.store.Audit(ctx, q)
		if err != nil {
			return "", err
		}
		for i := range records {
			if engine.StartsRun(&records[i], run.ID) {
				return records[i].Actor, nil
			}
		}
		if q.Before = next; next == 0 {
			break
		}
	}
	return "", nil
}
