package job

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// encode returns the node of a value, or nil if it is not set.
func encode(v reflect.Value) *node {
	if !isSaid(v) {
		return nil
	}
	return encodeSet(v)
}

// isSaid reports whether a document has the field with a value.
func isSaid(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil()
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	}
	return !v.IsZero()
}

// encodeSet returns the node of a value that is set, even to zero.
func encodeSet(v reflect.Value) *node {
	t := v.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		return encodeSet(v.Elem())
	case t == timeType:
		return textNode(formatInstant(v.Interface().(time.Time)))
	case isText(t):
		return textNode(textOf(v))
	case t.Kind() == reflect.Struct:
		return encodeStruct(v)
	case t.Kind() == reflect.Map:
		n := object()
		for _, key := range sortedKeys(v) {
			n.add(key, encodeSet(v.MapIndex(reflect.ValueOf(key))))
		}
		return n
	case t.Kind() == reflect.Slice:
		n := list()
		for i := range v.Len() {
			n.entries = append(n.entries, entry{value: encodeSet(v.Index(i))})
		}
		return n
	}
	return plainNode(plainOf(v))
}

func encodeStruct(v reflect.Value) *node {
	n := &node{kind: mappingNode}
	n.addFields(v)
	if short := shortField(v.Type()); short != nil && short.terse && len(n.entries) == 1 && n.entries[0].key == short.key {
		return n.entries[0].value
	}
	return n
}

// addFields appends the fields of a struct that are set.
func (n *node) addFields(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		if value := encode(f.of(v)); value != nil {
			n.entries = append(n.entries, entry{f.key, value})
		}
	}
}

// appendSet appends what encodeSet returns as JSON on one line, without the nodes.
func appendSet(b []byte, v reflect.Value) []byte {
	t := v.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		return appendSet(b, v.Elem())
	case t.Kind() == reflect.String:
		return appendJSONText(b, v.String())
	case t == timeType:
		return appendJSONText(b, formatInstant(v.Interface().(time.Time)))
	case isText(t):
		return appendJSONText(b, textOf(v))
	case t.Kind() == reflect.Struct:
		begin := len(b)
		b, fields, short := appendFields(append(b, '{'), v)
		if fields == 1 && short > 0 {
			return append(b[:begin], b[short:]...)
		}
		return append(b, '}')
	case t.Kind() == reflect.Map:
		b = append(b, '{')
		for i, key := range sortedKeys(v) {
			b = append(appendJSONText(appendComma(b, i), key), ':')
			b = appendSet(b, v.MapIndex(reflect.ValueOf(key)))
		}
		return append(b, '}')
	case t.Kind() == reflect.Slice:
		b = append(b, '[')
		for i := range v.Len() {
			b = appendSet(appendComma(b, i), v.Index(i))
		}
		return append(b, ']')
	}
	return append(b, plainOf(v)...)
}

// appendFields appends the fields of a struct that are set. It returns their number, and where the
// value of a terse field begins, if there is one.
func appendFields(b []byte, v reflect.Value) (_ []byte, fields, short int) {
	for _, f := range fieldsOf(v.Type()) {
		value := f.of(v)
		if !isSaid(value) {
			continue
		}
		b = append(appendJSONText(appendComma(b, fields), f.name), ':')
		if fields++; f.terse {
			short = len(b)
		}
		b = appendSet(b, value)
	}
	return b, fields, short
}

// plainOf returns the text of a number or a truth value.
func plainOf(v reflect.Value) string {
	if v.CanInt() {
		return strconv.FormatInt(v.Int(), 10)
	}
	return fmt.Sprint(v.Interface())
}

// textOf returns the text of a value that is one text in documents.
func textOf(v reflect.Value) string {
	m, ok := v.Interface().(encoding.TextMarshaler)
	if !ok {
		return v.String()
	}
	// The types of this package cannot fail to be written.
	text, _ := m.MarshalText()
	return string(text)
}

func sortedKeys(m reflect.Value) []string {
	// Nearly all are of texts, and need no reflection.
	if texts, ok := m.Interface().(map[string]string); ok {
		keys := slices.AppendSeq(make([]string, 0, len(texts)), maps.Keys(texts))
		slices.Sort(keys)
		return keys
	}
	keys := make([]string, 0, m.Len())
	for _, key := range m.MapKeys() {
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	return keys
}
