package job

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Tags on the types of this package define the content of documents. Reading, writing,
// checking and the JSON [Schema] all follow the same tags:
//
//	json   the name of the field in documents; "-" is not part of them; without
//	       omitzero it is required
//	doc    what the field means, for the schema
//	min    the least number, Duration or Size; a field that is not set is not checked
//	max    the largest one, or the most bytes of a text
//	beside for a field of a kind of work that documents have beside the kind, in run itself
//	secret what of the value often is a secret: value or address; see SecrecyOf
//	items  the most items of a list or mapping
//	keys   what the keys of a mapping are, where settings have it: names, labels or
//	       variables; the keys of documents are checked by what reads them
//	short  for the field that a text alone stands for, in place of the mapping: "true"
//	       where it is written like that as well, "read" where it is only read
//
// An enumeration is a string type with a method Values. A field whose zero is something
// that a user may wish to say is a pointer: nil is "not said".
type field struct {
	name     string
	key      *node // the name as written
	doc      string
	index    int
	owner    int // for a field written beside its struct: the index of the struct, otherwise -1
	typ      reflect.Type
	zero     reflect.Value
	min, max string
	least    float64 // the min bound of numbers, or the least number
	most     float64 // the max bound of numbers, or the largest number
	bytes    int     // the longest text
	items    int
	keys     string
	secret   Secrecy
	short    bool
	terse    bool // short, and written as text only
	required bool // the tag has no omitzero
	plain    bool // a text, number or truth value, or a pointer to one
}

const (
	// textMax is the default bound of a text in bytes: a long command line. Longer texts
	// (scripts, bodies) have their own bound.
	textMax = 16 << 10
	// itemsMax is the default bound of a list or mapping: more items than anyone writes by hand.
	itemsMax = 256
)

// enum is implemented by enumerations.
type enum interface {
	// Values returns the allowed texts, in the order of lists.
	Values() []string
}

var (
	enumType            = reflect.TypeFor[enum]()
	timeType            = reflect.TypeFor[time.Time]()
	durationType        = reflect.TypeFor[Duration]()
	sizeType            = reflect.TypeFor[Size]()
	umaskType           = reflect.TypeFor[Umask]()
	idType              = reflect.TypeFor[ID]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// isText reports whether values of the type are single texts in documents.
func isText(t reflect.Type) bool {
	if t.Kind() == reflect.String || t == timeType {
		return true
	}
	text, known := texted.Load(t)
	if !known {
		text = reflect.PointerTo(t).Implements(textUnmarshalerType)
		texted.Store(t, text)
	}
	return text.(bool)
}

// texted caches the slow results of isText by type. It is bounded like structs.
var texted sync.Map // reflect.Type to bool

// structs caches the fields of struct types. It is bounded by the types of this package.
var structs sync.Map // reflect.Type to []*field

// fieldsOf returns the fields of a struct in documents, in their order.
func fieldsOf(t reflect.Type) []*field {
	if fields, ok := structs.Load(t); ok {
		return fields.([]*field)
	}
	fields := appendFieldsOf(nil, t, -1)
	for _, f := range fields {
		if f.typ.Kind() == reflect.Pointer && f.typ.Elem().Kind() == reflect.Struct && !isText(f.typ.Elem()) {
			fields = appendFieldsOf(fields, f.typ.Elem(), f.index)
		}
	}
	stored, _ := structs.LoadOrStore(t, fields)
	return stored.([]*field)
}

// appendFieldsOf appends the fields of a struct or, if it has an owner, the fields that
// documents write beside it.
func appendFieldsOf(fields []*field, t reflect.Type, owner int) []*field {
	for i := range t.NumField() {
		sf := t.Field(i)
		name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "-" || name == "" || (sf.Tag.Get("beside") != "") != (owner >= 0) {
			continue
		}
		f := &field{
			name: name, key: textNode(name), doc: sf.Tag.Get("doc"), index: i, owner: owner, typ: sf.Type, zero: reflect.Zero(sf.Type),
			min: sf.Tag.Get("min"), max: sf.Tag.Get("max"),
			items: itemsMax, keys: sf.Tag.Get("keys"), secret: Secrecy(sf.Tag.Get("secret")), short: sf.Tag.Get("short") != "", terse: sf.Tag.Get("short") == "true",
			required: options != "omitzero",
			plain:    isLeaf(sf.Type) || sf.Type.Kind() == reflect.Pointer && isLeaf(sf.Type.Elem()),
		}
		if items := sf.Tag.Get("items"); items != "" {
			f.items, _ = strconv.Atoi(items)
		}
		f.setBounds(sf.Type)
		fields = append(fields, f)
	}
	return fields
}

// of returns the field of a struct, or an unsettable zero if its owner is missing.
func (f *field) of(v reflect.Value) reflect.Value {
	if f.owner < 0 {
		return v.Field(f.index)
	}
	if owner := v.Field(f.owner); !owner.IsNil() {
		return owner.Elem().Field(f.index)
	}
	return f.zero
}

// isWork reports whether a field of [RunSpec] is a kind of work, not a field of one.
func (f *field) isWork() bool { return f.owner < 0 }

// shortField returns the field of a struct that its short text form sets, or nil.
func shortField(t reflect.Type) *field {
	if t.Kind() == reflect.Struct && t != timeType {
		for _, f := range fieldsOf(t) {
			if f.short {
				return f
			}
		}
	}
	return nil
}

// checkBounds explains why a value is out of the bounds of the field, or returns none.
func (f *field) checkBounds(v reflect.Value) phrase.Text {
	switch {
	case v.Kind() == reflect.String:
		if v.Len() > f.bytes {
			return phrase.TooManyBytes.Of(v.Len(), f.bytes)
		}
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Map:
		if v.Len() > f.items {
			return phrase.TooManyEntries.Of(v.Len(), f.items)
		}
	case isNumber(v.Type()):
		n := number(v)
		tooSmall, tooLarge := n < f.least, n > f.most
		switch {
		case (tooSmall || tooLarge) && f.min != "" && f.max != "":
			return phrase.NotBetween.Of(f.min, f.max, fmt.Sprint(v.Interface()))
		case tooSmall:
			return phrase.NotAtLeast.Of(f.min, fmt.Sprint(v.Interface()))
		case tooLarge:
			return phrase.NotAtMost.Of(f.max, fmt.Sprint(v.Interface()))
		}
	}
	return phrase.Text{}
}

// setBounds sets the bounds from the tags of a field, for its value or, in lists, each
// item.
func (f *field) setBounds(t reflect.Type) {
	for !isText(t) && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		t = t.Elem()
	}
	f.least, f.most, f.bytes = math.Inf(-1), math.Inf(1), textMax
	switch {
	case isNumber(t):
		if f.min != "" {
			f.least = bound(t, f.min)
		}
		if f.max != "" {
			f.most = bound(t, f.max)
		}
	case f.max != "":
		f.bytes, _ = strconv.Atoi(f.max)
	}
}

// bound reads a bound in the form of the field's type.
func bound(t reflect.Type, text string) float64 {
	v := reflect.New(t)
	if u, ok := v.Interface().(encoding.TextUnmarshaler); ok {
		if u.UnmarshalText([]byte(text)) == nil {
			return number(v.Elem())
		}
	}
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// isLeaf reports whether documents write values of the type as a text, number or truth value.
func isLeaf(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Struct:
		return isText(t)
	}
	return true
}

func isNumber(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint16, reflect.Float64:
		return true
	}
	return false
}

// number returns a number of any kind for comparing. Bounds are small, so the rounding of
// float64 does not matter.
func number(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	}
	return v.Float()
}
