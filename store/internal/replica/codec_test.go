package replica

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/decide/engine"
	"github.com/belfry-cron/belfry/internal/decide/nodeclock"
	"github.com/belfry-cron/belfry/store"
)

// fill gives each field of a value, nested ones included, a value other than zero. It leaves out
// fields that a coder does not store.
func fill(t *testing.T, v reflect.Value, path string, left []string) {
	t.Helper()
	if slices.Contains(left, path) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if at, ok := v.Addr().Interface().(*time.Time); ok {
			*at = time.Date(2026, 11, 20, 12, 0, 0, 123456789, time.UTC).Add(time.Duration(len(path)))
			return
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() {
				fill(t, v.Field(i), path+"."+f.Name, left)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), path, left)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(t, v.Index(i), path+"[]", left)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), path+"[]", left)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), reflect.ValueOf("value"))
	case reflect.String:
		v.SetString(path)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(2 * (int64(len(path)) + 7)) // even: the last bit of LostAfter is Unfenced
	case reflect.Float64:
		v.SetFloat(float64(len(path)))
	case reflect.Uint64:
		v.SetUint(1<<63 + uint64(len(path)))
	case reflect.Uint8:
		v.SetUint(uint64(len(path)) + 7)
	default:
		t.Fatalf("%s has a kind that this test does not know: %s", path, v.Kind())
	}
}

// A field added to one of these types is lost unless its coder knows it.
func TestEachFieldIsKept(t *testing.T) {
	check := func(name string, want, got any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", name, got, want)
		}
	}
	isKept(t, "run", codeRun, check)
	isKept(t, "record", codeRecord, check)
	isKept(t, "session", codeSession, check, ".Session.Renewed", ".Session.Steady", ".Session.BeforeGap", ".Session.Load", ".Session.ClockOff")
	isKept(t, "key", codeKey, check)
	isKept(t, "chunk", codeChunk, check, ".DropFrom", ".DropTo")
	isKept(t, "token", codeToken, check)
	isKept(t, "audit", codeAudit, check)
	isKept(t, "drain", codeDrain, check)
	isKept(t, "handover", codeHandover, check)

	var j engine.Job
	fill(t, reflect.ValueOf(&j).Elem(), "", []string{".Policy", ".Document"})
	h := head{job: j, document: "d", seq: 3, timing: "t", follows: []string{"a"}, calendars: []string{"b"}, boot: true, broadcast: true}
	got, err := decode(encode(&h, codeHead, 0), codeHead)
	if err != nil {
		t.Fatal(err)
	}
	check("job", h, got)

	var load store.Load
	fill(t, reflect.ValueOf(&load).Elem(), "", nil)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := renewal{renewed: at, steady: at.Add(1), beforeGap: at.Add(2), load: load, clock: at.Add(3), standing: nodeclock.Off, since: 7}
	again, err := decode(encode(&r, codeRenewal, 0), codeRenewal)
	if err != nil {
		t.Fatal(err)
	}
	check("renewal", r, again)
	// Versions without the last field, and without the last three, have written less.
	r.load.Unreported = 1
	whole := encode(&r, codeRenewal, 0)
	r.load.Unreported = 0
	if again, err = decode(whole[:len(whole)-1], codeRenewal); err != nil {
		t.Fatal(err)
	}
	check("renewal of the version before", r, again)
	r.standing, r.since = nodeclock.Good, 0
	if again, err = decode(whole[:len(whole)-3], codeRenewal); err != nil {
		t.Fatal(err)
	}
	check("renewal of an earlier version", r, again)
}

func isKept[T any](t *testing.T, name string, code func(*coder, *T), check func(string, any, any), left ...string) {
	t.Helper()
	var v T
	fill(t, reflect.ValueOf(&v).Elem(), "", left)
	got, err := decode(encode(&v, code, 0), code)
	if err != nil {
		t.Fatal(err)
	}
	check(name, v, got)
}

func TestLargeStatesOfFlowsAreCompressed(t *testing.T) {
	for _, n := range []int{0, 1, packFrom - 1, packFrom, 1 << 20} {
		var want store.Run
		want.Run.Flow = bytes.Repeat([]byte("{"), n)
		value := encode(&want, codeRun, 0)
		if n >= packFrom && len(value) > n/10 {
			t.Errorf("a state of %d bytes is kept in %d", n, len(value))
		}
		got, err := decode(value, codeRun)
		if err != nil || !bytes.Equal(got.Flow, want.Flow) {
			t.Errorf("of %d bytes %d are read, error %v", n, len(got.Flow), err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(&store.Run{}, codeRun, 0))
	f.Add([]byte{format, 0xff, 0xff, 0xff})
	f.Fuzz(func(_ *testing.T, value []byte) {
		_, _ = decode(value, codeRun)
		_, _ = decode(value, codeRecord)
		_, _ = decodeCell(value, nil)
		_, _ = decodeGroup("", value)
	})
}
