package job

import (
	"reflect"
	"regexp"
	"strconv"
	"testing"
)

// eachType calls visit for the struct types of documents.
func eachType(visit func(reflect.Type)) {
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(t.Elem())
		case reflect.Struct:
			if t == timeType || seen[t] {
				return
			}
			seen[t] = true
			visit(t)
			for i := range t.NumField() {
				walk(t.Field(i).Type)
			}
		}
	}
	for _, t := range []reflect.Type{reflect.TypeFor[Job](), reflect.TypeFor[Calendar](), reflect.TypeFor[Pool]()} {
		walk(t)
	}
}

var fieldName = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)

func TestTagsAreComplete(t *testing.T) {
	eachType(func(typ reflect.Type) {
		for _, f := range fieldsOf(typ) {
			at := typ.Name() + "." + f.name
			if !fieldName.MatchString(f.name) {
				t.Errorf("%s has the name %q", at, f.name)
			}
			if len(f.doc) < 10 || f.doc[len(f.doc)-1] != '.' {
				t.Errorf("%s has the description %q", at, f.doc)
			}
			value := f.typ
			for value.Kind() == reflect.Pointer || value.Kind() == reflect.Slice || value.Kind() == reflect.Map {
				value = value.Elem()
			}
			if isNumber(value) && value != umaskType && f.max == "" && f.name != "version" {
				t.Errorf("%s has no bound", at)
			}
			for _, text := range []string{f.min, f.max} {
				if text == "" {
					continue
				}
				if !isNumber(value) {
					if _, err := strconv.Atoi(text); err != nil {
						t.Errorf("%s has the bound %q", at, text)
					}
				} else if text != "0" && text != "0s" && bound(value, text) == 0 {
					t.Errorf("%s has the bound %q, which cannot be read", at, text)
				}
			}
			// A plain field cannot tell an allowed zero from an unset value.
			if isNumber(f.typ) && f.min != "" && bound(f.typ, f.min) == 0 {
				t.Errorf("%s allows zero and is no pointer", at)
			}
		}
	})
}

// setFields collects the set fields of a value, by type and name.
func setFields(v reflect.Value, found map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			setFields(v.Elem(), found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			setFields(v.Index(i), found)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			setFields(v.MapIndex(key), found)
		}
	case reflect.Struct:
		if v.Type() == timeType {
			return
		}
		for _, f := range fieldsOf(v.Type()) {
			if field := f.of(v); !field.IsZero() {
				found[v.Type().Name()+"."+f.name] = true
				setFields(field, found)
			}
		}
	}
}

func TestSampleOfEverythingHasEverything(t *testing.T) {
	found := map[string]bool{}
	for _, doc := range readSample(t, "testdata/good/everything.yaml") {
		setFields(doc.body(), found)
	}
	eachType(func(typ reflect.Type) {
		for _, f := range fieldsOf(typ) {
			if !found[typ.Name()+"."+f.name] {
				t.Errorf("%s.%s is in no document of everything.yaml", typ.Name(), f.name)
			}
		}
	})
}
