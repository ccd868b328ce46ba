package job

import (
	"encoding"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// decoder fills Go values from nodes and collects mismatches.
type decoder struct {
	file     string
	kind     Kind // of documents that do not say theirs; "" is a job
	problems Problems
	broken   []string // the paths of the problems
}

func (d *decoder) report(n *node, at *path, message phrase.Text, hint ...phrase.Text) {
	line, column := n.place()
	d.broken = append(d.broken, at.String())
	d.problems = append(d.problems, Problem{
		File: d.file, Line: line, Column: column,
		Path: at.String(), Message: phraseReason(message), Hint: phraseReason(first(hint)),
	})
}

// decode fills v, which is settable and zero, from n. v is the value of the field or one of
// its items.
func (d *decoder) decode(n *node, v reflect.Value, f *field, at *path) {
	t := v.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		d.decode(n, v.Elem(), f, at)
	case isLeaf(t):
		d.decodeLeaf(n, v, at)
	case t.Kind() == reflect.Struct:
		d.decodeStruct(n, v, at)
	case t.Kind() == reflect.Map:
		d.decodeMap(n, v, f, at)
	default:
		d.decodeList(n, v, f, at)
	}
}

// decodeLeaf is decode for a plain field. It is not recursive, so its path needs no
// allocation.
func (d *decoder) decodeLeaf(n *node, v reflect.Value, at *path) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if isText(v.Type()) {
		d.decodeText(n, v, at)
	} else {
		d.decodePlain(n, v, at)
	}
}

func (d *decoder) decodeText(n *node, v reflect.Value, at *path) {
	if n.kind != scalarNode {
		d.report(n, at, phrase.Expected.Of(kindInWords(v.Type()), n.describe()))
		return
	}
	if v.Type() == timeType {
		t, err := parseInstant(n.text)
		d.reportMistake(n, at, err)
		v.Set(reflect.ValueOf(t))
		return
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.reportMistake(n, at, u.UnmarshalText([]byte(n.text)))
		return
	}
	v.SetString(n.text)
	if message, hint := checkEnum(v); !message.IsZero() {
		d.report(n, at, message, hint)
	}
}

// reportMistake reports an error about the text of a node, if err is not nil.
func (d *decoder) reportMistake(n *node, at *path, err error) {
	if err != nil {
		message, hint := phrase.InWords(err)
		d.report(n, at, message, hint)
	}
}

// checkEnum explains an invalid text of an enumeration.
func checkEnum(v reflect.Value) (message, hint phrase.Text) {
	if !v.Type().Implements(enumType) {
		return phrase.Text{}, phrase.Text{}
	}
	values := v.Interface().(enum).Values()
	if slices.Contains(values, v.String()) {
		return phrase.Text{}, phrase.Text{}
	}
	return phrase.UnknownValue.Of(quote(v.String()), values), hintOfValue(v.String(), values).Or(nearest(v.String(), values))
}

func (d *decoder) decodePlain(n *node, v reflect.Value, at *path) {
	if n.kind == scalarNode && !n.quoted {
		switch v.Kind() {
		case reflect.Bool:
			if n.text == "true" || n.text == "false" {
				v.SetBool(n.text == "true")
				return
			}
		case reflect.Float64:
			// The field's bounds refuse infinities, but not NaN.
			if x, err := strconv.ParseFloat(n.text, 64); err == nil && x == x {
				v.SetFloat(x)
				return
			}
		default:
			if i, err := strconv.ParseInt(n.text, 10, 64); err == nil && !v.OverflowInt(i) {
				v.SetInt(i)
				return
			}
		}
	}
	d.report(n, at, phrase.Expected.Of(kindInWords(v.Type()), n.describe()))
}

func (d *decoder) decodeStruct(n *node, v reflect.Value, at *path) {
	fields := fieldsOf(v.Type())
	if short := shortField(v.Type()); short != nil && n.kind == scalarNode {
		d.decode(n, short.of(v), short, at)
		return
	}
	if n.kind != mappingNode {
		d.report(n, at, phrase.Expected.Of(kindInWords(v.Type()), n.describe()), hintOfMapping(v.Type(), n))
		return
	}
	d.reportRepeated(n, at)
	if v.Type() == runSpecType {
		besideContainer(n, WorkContainer, reflect.TypeFor[Container]())
		besideContainer(n, WorkKubernetes, reflect.TypeFor[Kubernetes]())
	}
	d.decodeFields(n, v, fields, at, false)
	if fields[len(fields)-1].owner >= 0 {
		d.decodeFields(n, v, fields, at, true)
	}
}

// decodeFields decodes the entries of a mapping: fields of the struct, or of a nested struct that
// documents write beside it. Validate reports fields of a missing one.
func (d *decoder) decodeFields(n *node, v reflect.Value, fields []*field, at *path, beside bool) {
	for _, e := range n.entries {
		f := fieldNamed(fields, e.key.text)
		if (f != nil && f.owner >= 0) != beside {
			continue
		}
		if f == nil {
			d.report(e.key, at.field(e.key.text), phrase.UnknownField.Of(quote(e.key.text)), d.hintOfUnknown(e.key.text, fields, v.Type(), at))
			continue
		}
		// A field without a value is not set: generated JSON is full of null.
		if e.value.kind == nullNode {
			continue
		}
		target := f.of(v)
		if !target.CanSet() {
			continue
		}
		if f.plain {
			d.decodeLeaf(e.value, target, at.field(f.name))
		} else {
			d.decode(e.value, target, f, at.field(f.name))
		}
		// From here on zero counts as unset, so that a zero must be refused here.
		if target.IsZero() && isNumber(target.Type()) && isZeroText(e.value) {
			if message := f.checkBounds(target); !message.IsZero() {
				d.report(e.value, at.field(f.name), message)
			}
		}
	}
}

// hintsMax bounds the unknown fields of a document that get a hint: the search for the
// nearest name takes longer than everything else about them.
const hintsMax = 100

// hintOfUnknown suggests fields for an unknown one.
func (d *decoder) hintOfUnknown(name string, fields []*field, in reflect.Type, at *path) phrase.Text {
	if len(d.problems) >= hintsMax {
		return phrase.Text{}
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return hintOfPlace(name, in, at.String()).Or(nearest(name, names)).Or(phrase.Known.Of(names))
}

// isZeroText reports whether the text is a number of value zero, and not an unreadable
// number.
func isZeroText(n *node) bool {
	return n.kind == scalarNode && strings.HasPrefix(strings.TrimLeft(n.text, "-"), "0")
}

// fieldNamed returns the field with a name, or nil.
func fieldNamed(fields []*field, name string) *field {
	for _, f := range fields {
		if f.name == name {
			return f
		}
	}
	return nil
}

// reportRepeated reports keys that a mapping has twice.
func (d *decoder) reportRepeated(n *node, at *path) {
	if !n.repeats() {
		return
	}
	lines := make(map[string]int, len(n.entries))
	for _, e := range n.entries {
		if line, ok := lines[e.key.text]; ok {
			d.report(e.key, at.field(e.key.text), phrase.TwiceOnLine.Of(line))
			continue
		}
		lines[e.key.text] = int(e.key.line)
	}
}

func (d *decoder) decodeMap(n *node, v reflect.Value, f *field, at *path) {
	if n.kind != mappingNode {
		d.report(n, at, phrase.Expected.Of(phrase.NameMapping, n.describe()))
		return
	}
	if len(n.entries) == 0 {
		return
	}
	d.reportRepeated(n, at)
	m := reflect.MakeMapWithSize(v.Type(), len(n.entries))
	for _, e := range n.entries {
		value := reflect.New(v.Type().Elem()).Elem()
		d.decode(e.value, value, f, at.field(e.key.text))
		m.SetMapIndex(reflect.ValueOf(e.key.text), value)
	}
	v.Set(m)
}

// decodeList fills a list. A single item may be written without a list.
func (d *decoder) decodeList(n *node, v reflect.Value, f *field, at *path) {
	if n.kind != listNode {
		item := reflect.New(v.Type().Elem()).Elem()
		d.decode(n, item, f, at)
		v.Set(reflect.Append(v, item))
		return
	}
	// An empty list of conditions could mean always or never.
	if len(n.entries) == 0 {
		d.report(n, at, phrase.EmptyList, phrase.LeaveFieldOut)
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.entries), len(n.entries))
	for i, item := range n.entries {
		d.decode(item.value, list.Index(i), f, at.item(i))
	}
	v.Set(list)
}

// kindInWords describes the values of a type, with an example.
func kindInWords(t reflect.Type) phrase.Text {
	switch {
	case t == timeType:
		return phrase.AnInstant
	case t == durationType:
		return phrase.ADuration
	case t == sizeType:
		return phrase.ASize
	case t == umaskType:
		return phrase.Digits
	case t == idType:
		return phrase.AnID
	case t.Implements(enumType):
		return phrase.OneOf.Of(reflect.Zero(t).Interface().(enum).Values())
	case isText(t):
		return phrase.AText
	case t.Kind() == reflect.Bool:
		return phrase.ABool
	case t.Kind() == reflect.Float64:
		return phrase.ANumber
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return phrase.AWholeNumber
	}
	if short := shortField(t); short != nil {
		return phrase.OrMapping.Of(kindInWords(short.typ))
	}
	return phrase.AMapping
}
