package job

import (
	"reflect"
	"time"
)

// Same tells whether two documents say the same: whether Encode writes the same of
// both. What is empty says nothing.
func Same(a, b Document) bool {
	return a.kind() == b.kind() && sameStruct(a.body(), b.body())
}

// SameSchedule tells whether two schedules say the same.
func SameSchedule(a, b Schedule) bool {
	return sameStruct(reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem())
}

// same compares two values of a field.
func same(a, b reflect.Value) bool {
	saidA, saidB := isSaid(a), isSaid(b)
	return saidA == saidB && (!saidA || sameSaid(a, b))
}

// sameSaid compares two values that are set, be they zero.
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
		if !same(a.Field(f.index), b.Field(f.index)) {
			return false
		}
	}
	return true
}

// Apart takes from two jobs the parts of the document that are the same in both: what
// is left says what is different. It tells whether the documents are the same.
func Apart(a, b *Job) (all bool) {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	all = true
	for _, f := range fieldsOf(x.Type()) {
		if same(x.Field(f.index), y.Field(f.index)) {
			x.Field(f.index).SetZero()
			y.Field(f.index).SetZero()
		} else {
			all = false
		}
	}
	return all
}
