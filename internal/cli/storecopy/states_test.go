package storecopy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli/storecopy"
	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// variants is how many values of each type are copied: enough for each pair of a state and an
// origin of runs.
const variants = 36

// filler sets all fields of values, so that tests also copy new fields without naming them.
type filler struct {
	*testing.T
	n    int // the variant, which selects enumeration values
	next int // makes values differ
}

// endless are values that have no place among unfinished runs.
var endless = map[string]bool{string(job.StateDone): true}

// fill sets all fields of a value except some names, by reflection.
func (f *filler) fill(v reflect.Value, without ...string) {
	f.next++
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = start.Add(time.Duration(f.next) * time.Second) // in the stores' precision
		return
	case *job.ID:
		*p = job.ID{6: byte(f.next >> 8), 7: byte(f.next), 15: 1}
		return
	case *store.TokenHash:
		*p = store.TokenHash{byte(f.next >> 8), byte(f.next), 1}
		return
	case *[]byte:
		*p = fmt.Appendf(nil, `{"n":%d}`, f.next)
		return
	case *engine.Shards:
		*p = engine.Shards(fmt.Sprint(f.next))
		return
	case interface{ Values() []string }:
		all := slices.DeleteFunc(p.Values(), func(s string) bool { return endless[s] && slices.Contains(without, "done") })
		v.SetString(all[(f.n+f.n/len(all))%len(all)])
		return
	case *store.Role:
		*p = []store.Role{store.RoleAdmin, store.RoleRunner, store.RoleViewer, store.RoleSession, store.RoleCode, store.RoleRemote, store.RoleJoin}[f.n%7]
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if t := v.Type().Field(i); t.IsExported() && !slices.Contains(without, t.Name) {
				f.fill(v.Field(i), without...)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), without...)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			f.fill(v.Index(i), without...)
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), without...)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, without...)
		f.fill(value, without...)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(fmt.Sprintf("%s %d", strings.ToLower(v.Type().Name()), f.next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.next))
		if v.Type() == reflect.TypeFor[time.Duration]() || v.Type() == reflect.TypeFor[job.Duration]() {
			v.SetInt(int64(f.next) * int64(time.Second))
		}
	case reflect.Uint64:
		v.SetUint(uint64(f.next))
	case reflect.Uint8:
		v.SetUint(uint64(f.next%255 + 1))
	case reflect.Float64:
		v.SetFloat(float64(f.next))
	default:
		f.Fatalf("%s cannot be filled: add its kind", v.Type())
	}
}

func filled[T any](f *filler, without ...string) (value T) {
	f.fill(reflect.ValueOf(&value).Elem(), without...)
	return value
}

// owned assigns a run to a job.
func owned(j *engine.Job, r *job.Run) {
	r.JobUID, r.Namespace, r.Name = j.UID, j.Namespace, j.Name
	if r.Kind == job.RunScheduled {
		r.Key = r.Scheduled.Format(time.RFC3339)
	}
}

// everyState fills a store with values of each type in each state.
func (w *world) everyState() {
	w.Helper()
	f := &filler{T: w.T}
	kept := engine.Kept{
		Documents: engine.Documents{}, Drains: map[string]*store.Drain{}, Tokens: map[string]store.Token{},
		Sessions: map[job.ID]store.Session{}, Over: map[job.ID]bool{}, Number: 1 << 40,
	}
	for _, kind := range store.DocumentKinds {
		kept.Documents[kind] = map[string]job.Document{}
	}
	var defs, cells []engine.Adopted
	var audit []store.AuditRecord
	var records []store.Record
	var chunks []store.OutputChunk
	for f.n = range variants {
		text := fmt.Sprintf("name: j%d\nschedule: {cron: '* * * * *'}\nrun: {shell: 'true'}", f.n)
		docs, err := job.Decode("test.yaml", []byte(text))
		w.must(err)
		d, err := w.Document(docs[0].Job)
		w.must(err)
		d.Actor = "ann"
		c := engine.Cell{Job: filled[engine.Job](f, "Document", "Policy", "Deleted")}
		c.Job.Namespace, c.Job.Name, c.Job.Document = "default", docs[0].Job.Name, d
		for range variants / 4 {
			f.n++
			r := filled[store.Run](f, "done", "Outcome") // no outcome before its end
			owned(&c.Job, &r.Run)
			r.Attempt = f.n%3 + 1 // the output of earlier attempts is looked up
			c.Runs = append(c.Runs, r)
			if r.State == job.StateRunning { // like a number at an executor
				h := filled[store.Handover](f, "Ended")
				h.Attempt.Job, h.Attempt.Run = r.JobUID, r.ID
				c.Handovers = append(c.Handovers, h)
			}
		}
		flow := slices.IndexFunc(c.Runs, func(r store.Run) bool { return r.Kind != job.RunStep })
		for i := range c.Runs {
			if r := &c.Runs[i]; r.Kind == job.RunStep {
				r.Parent, r.Key = c.Runs[flow].ID, job.StepKey(c.Runs[flow].ID, "step", i)
			}
		}
		f.n -= variants / 4
		defined := engine.Cell{Job: c.Job}
		defined.Job.State, defined.Job.Changed = job.JobActive, c.Job.Changed.Add(-time.Hour) // completed or paused since
		defs = append(defs, engine.Adopted{Cell: defined, Document: d, Past: true})
		cells = append(cells, engine.Adopted{Cell: c, Document: d})
		for _, kind := range store.DocumentKinds {
			d := job.Document{Kind: kind}
			f.fill(reflect.ValueOf(d.Content()).Elem())
			kept.Documents[kind][d.FullName()] = d
		}
		t, s, drain := filled[store.Token](f), filled[store.Session](f, "Drain", "ClockOff"), filled[store.Drain](f)
		kept.Tokens[t.Name], kept.Sessions[s.ID], kept.Over[s.ID], kept.Drains[fmt.Sprint("node-", f.n)] = t, s, true, &drain
		audit = append(audit, filled[store.AuditRecord](f, "Seq"))
		r := filled[store.Record](f)
		owned(&c.Job, &r.Run)
		// A record has the last of these once, and its run is done if it is final.
		r.Attempt.Run, r.Run.Node, r.Run.Reason, r.Final, r.Run.State = r.Run.ID, r.Attempt.Node, r.Attempt.Reason, f.n%2 == 0, job.StateDone
		if !r.Final {
			r.Run.State = job.StateRunning
		}
		records = append(records, r)
		chunk := filled[store.OutputChunk](f, "DropFrom", "DropTo", "Seq", "Offset")
		chunk.Run, chunk.Attempt, chunk.Bytes = r.Run.ID, r.Attempt.Number, len(chunk.Data)
		chunks = append(chunks, chunk)
		for _, prefix := range []string{"secret/default/", "notify/", "xxl/"} {
			_, err := w.PutNote(w.ctx, store.Note{Name: fmt.Sprint(prefix, f.n), Text: filled[[]byte](f)})
			w.must(err)
		}
	}
	w.must(w.Operate(w.ctx, &engine.Adopt{Cells: defs}))
	for op := (&engine.Adopt{Cells: cells, Kept: &kept}); ; {
		w.must(w.Operate(w.ctx, op))
		if !op.More {
			break
		}
	}
	w.must(w.Operate(w.ctx, &engine.Adopt{Audit: audit}))
	w.must(w.AppendOutput(w.ctx, chunks))
	w.must(w.Append(w.ctx, records))
}

// content returns the whole content of a store as lines: a place and its value.
func content(t *testing.T, s storecopy.Store) map[string]string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lines := map[string]string{}
	ctx := t.Context()
	kept := engine.Survey{All: true}
	must(s.Operate(ctx, &kept))
	flatten(lines, "kept", reflect.ValueOf(kept.Kept))
	var uids []job.ID
	for q := (store.JobQuery{Limit: 100}); ; {
		list, next, err := s.ListJobs(ctx, q)
		must(err)
		for _, j := range list {
			uids = append(uids, j.Definition.UID)
		}
		if q.After = next; next == "" {
			break
		}
	}
	for _, uid := range uids {
		survey := engine.Survey{Jobs: []job.ID{uid}}
		must(s.Operate(ctx, &survey))
		cell := &survey.Cells[0]
		name := "job " + cell.Job.FullName()
		for i := range cell.Runs {
			cell.Runs[i].AlertAt = time.Time{} // derived from the rest
			flatten(lines, name+" run "+cell.Runs[i].ID.String(), reflect.ValueOf(cell.Runs[i]))
		}
		for _, h := range cell.Handovers {
			flatten(lines, fmt.Sprint(name, " handover ", h.Number), reflect.ValueOf(h))
		}
		revisions, err := s.Revisions(ctx, uid, 0, 100)
		must(err)
		for i, r := range revisions {
			definition, err := json.Marshal(r.Definition)
			must(err)
			lines[fmt.Sprint(name, " revision ", r.Version, " Definition")] = string(definition)
			revisions[i].Definition = nil
			flatten(lines, fmt.Sprint(name, " revision ", r.Version), reflect.ValueOf(revisions[i]))
		}
		cell.Job.Document, cell.Job.Policy = nil, nil
		flatten(lines, name, reflect.ValueOf(cell.Job))
	}
	for q := (store.HistoryQuery{Limit: 100}); ; {
		list, next, err := s.Attempts(ctx, q)
		must(err)
		for i := range list {
			r := &list[i]
			name := fmt.Sprint("record ", r.Ref())
			flatten(lines, name, reflect.ValueOf(*r))
			chunks, err := s.Output(ctx, r.Run.ID, r.Attempt.Number, 0, 100)
			must(err)
			flatten(lines, name+" output", reflect.ValueOf(chunks))
		}
		if q.Before = next; next == (store.RecordRef{}) {
			break
		}
	}
	notes, err := s.Notes(ctx, "", "", 1000)
	must(err)
	for _, n := range notes {
		lines["note "+n.Name] = string(n.Text) // the store sets versions
	}
	records, _, err := s.Audit(ctx, store.AuditQuery{Limit: 1000})
	must(err)
	for _, r := range records {
		if r.Seq = 0; r.Action != "store.copy" {
			flatten(lines, "audit "+r.Object, reflect.ValueOf(r))
		}
	}
	return lines
}

// flatten adds the values that are not empty.
func flatten(lines map[string]string, at string, v reflect.Value) {
	switch value := v.Interface().(type) {
	case time.Time:
		if !value.IsZero() {
			lines[at] = value.UTC().Format(time.RFC3339Nano)
		}
		return
	case []byte:
		if len(value) > 0 {
			lines[at] = string(value)
		}
		return
	case job.ID:
		if !value.IsZero() {
			lines[at] = value.String()
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if t := v.Type().Field(i); t.IsExported() {
				flatten(lines, at+" "+t.Name, v.Field(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			flatten(lines, at, v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			flatten(lines, fmt.Sprint(at, " ", i), v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			flatten(lines, fmt.Sprint(at, " ", key.Interface()), v.MapIndex(key))
		}
	default:
		if !v.IsZero() {
			lines[at] = fmt.Sprint(v.Interface())
		}
	}
}

// differences returns the lines in only one of two contents.
func differences(a, b map[string]string) (list []string) {
	for _, at := range slices.Sorted(maps.Keys(a)) {
		if b[at] != a[at] {
			list = append(list, fmt.Sprintf("%s: %q in the source, %q in the target", at, a[at], b[at]))
		}
	}
	for _, at := range slices.Sorted(maps.Keys(b)) {
		if _, has := a[at]; !has {
			list = append(list, fmt.Sprintf("%s: %q in the target alone", at, b[at]))
		}
	}
	return list[:min(len(list), 20)]
}

// copyStates copies each state through stores, and reads each copy from its place.
func copyStates(t *testing.T, places ...func() storecopy.Store) {
	w := newWorld(t, inMemory)
	w.everyState()
	want, from := content(t, w), w.Store
	for i, open := range places {
		to := open()
		_, err := storecopy.Copy(t.Context(), from, to, storecopy.Options{Active: true})
		from = open()
		if list := differences(want, content(t, from)); err != nil || len(list) > 0 {
			t.Fatalf("copy %d, into %T: %v\n%s", i, to, err, strings.Join(list, "\n"))
		}
	}
}

// again opens the store at a place, closing the previous one.
func again(t *testing.T, open func() storecopy.Store) func() storecopy.Store {
	var last storecopy.Store
	t.Cleanup(func() {
		if last != nil {
			_ = last.Close()
		}
	})
	return func() storecopy.Store {
		if last != nil {
			if err := last.Close(); err != nil {
				t.Fatal(err)
			}
		}
		last = open()
		return last
	}
}

// same is a store that ends with its process.
func same(s storecopy.Store) func() storecopy.Store { return func() storecopy.Store { return s } }

func clockAt() time.Time { return start }

func sqliteAt(t *testing.T) func() storecopy.Store {
	path := filepath.Join(t.TempDir(), "belfry.db")
	return again(t, func() storecopy.Store {
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{Now: clockAt, Guard: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// Each value of each type is equal after copies, in each of its states.
func TestCopyKeepsEveryState(t *testing.T) {
	copyStates(t, sqliteAt(t), sqliteAt(t), same(apart(t)(clockAt)), sqliteAt(t), same(inMemory(clockAt)))
}
