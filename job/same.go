package job

import (
	"iter"
	"reflect"
	"time"
)

// Same reports whether two documents have the same content: whether [Encode] writes the same for
// both, apart from the server's additions. Empty counts as unset.
func Same(a, b Document) bool {
	if a.kind() != b.kind() {
		return false
	}
	for range apart(a.body(), b.body()) {
		return false
	}
	return true
}

// Apart returns the fields in which two jobs differ, as encoding/json reads them: mappings,
// lists, texts, truth values, and numbers as they are written. Both are empty if the jobs
// are the [Same].
func Apart(a, b *Job) (ofA, ofB map[string]any) {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	ofA, ofB = map[string]any{}, map[string]any{}
	for f := range apart(x, y) {
		if n := encode(f.of(x)); n != nil {
			ofA[f.name] = n.tree()
		}
		if n := encode(f.of(y)); n != nil {
			ofB[f.name] = n.tree()
		}
	}
	return ofA, ofB
}

// apart finds the fields in which two documents of a kind differ. It ignores the server's additions
// and an explicit default namespace.
func apart(a, b reflect.Value) iter.Seq[*field] {
	return func(yield func(*field) bool) {
		for _, f := range fieldsOf(a.Type()) {
			x, y := f.of(a), f.of(b)
			switch f.name {
			case "uid", "version", "status", "source":
				continue
			case "namespace":
				if namespaceOf(x.String()) == namespaceOf(y.String()) {
					continue
				}
			}
			if !same(x, y) && !yield(f) {
				return
			}
		}
	}
}

// SameSchedule reports whether two schedules are equivalent.
func SameSchedule(a, b *Schedule) bool {
	return sameStruct(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
}

// same compares two values of a field.
func same(a, b reflect.Value) bool {
	saidA, saidB := isSaid(a), isSaid(b)
	return saidA == saidB && (!saidA || sameSaid(a, b))
}

// sameSaid compares two set values, which may be zero.
func sameSaid(a, b reflect.Value) bool {
	t := a.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		return sameSaid(a.Elem(), b.Elem())
	case t == timeType:
		return formatInstant(a.Interface().(time.Time)) == formatInstant(b.Interface().(time.Time))
	case isText(t):
		return a.Equal(b) || textOf(a) == textOf(b)
	case t.Kind() == reflect.Struct:
		return sameStruct(a, b)
	case t.Kind() == reflect.Map:
		for keys := a.MapRange(); keys.Next(); {
			if other := b.MapIndex(keys.Key()); !other.IsValid() || !sameSaid(keys.Value(), other) {
				return false
			}
		}
		return a.Len() == b.Len()
	case t.Kind() == reflect.Slice:
		for i := range min(a.Len(), b.Len()) {
			if !sameSaid(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	}
	return a.Equal(b)
}

func sameStruct(a, b reflect.Value) bool {
	for _, f := range fieldsOf(a.Type()) {
		if !same(f.of(a), f.of(b)) {
			return false
		}
	}
	return true
}
