package belfry

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/job"
)

// shape maps a Go type to the parameters of a job and back.
type shape struct {
	fields []field // the fields of a struct, each a parameter
	whole  bool    // the value is one parameter, wholeParam
}

type field struct {
	name  string // of the parameter
	index int    // in the struct
	kind  reflect.Type
}

const (
	// wholeParam is the parameter of an input that is no plain struct.
	wholeParam = "input"
	// fieldsMax is how many parameters a job may have.
	fieldsMax = 64
)

var (
	paramName         = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	durationType      = reflect.TypeFor[time.Duration]()
	jsonMarshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler     = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler   = reflect.TypeFor[encoding.TextUnmarshaler]()
	noFields          = shape{}
	wholeShape        = shape{whole: true}
	unsupportedFields = []reflect.Kind{reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128}
)

// shapeOf returns how a type is written as parameters.
func shapeOf(t reflect.Type) shape {
	if t == reflect.TypeFor[None]() {
		return noFields
	}
	if t.Kind() != reflect.Struct || t.Implements(jsonMarshaler) || t.Implements(textMarshaler) {
		return wholeShape
	}
	var s shape
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous || strings.Contains(","+options+",", ",string,"):
			return wholeShape
		case !f.IsExported() || name == "-" && options == "":
			continue
		case name == "":
			name = f.Name
		}
		if !paramName.MatchString(name) {
			return wholeShape
		}
		s.fields = append(s.fields, field{name, i, f.Type})
	}
	if len(s.fields) > fieldsMax {
		return wholeShape
	}
	return s
}

// isText reports whether values of a type are texts: written without quotes.
func isText(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(textUnmarshaler) {
		return true
	}
	return t.Kind() == reflect.String && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// encode returns the parameters of a value, for all fields of its type.
func (s shape) encode(v reflect.Value) (map[string]string, error) {
	params := map[string]string{}
	if s.whole {
		text, err := encodeOne(v.Type(), v)
		if err != nil {
			return nil, err
		}
		params[wholeParam] = text
	}
	for _, f := range s.fields {
		text, err := encodeOne(f.kind, v.Field(f.index))
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", f.name, err)
		}
		params[f.name] = text
	}
	return params, nil
}

func encodeOne(t reflect.Type, v reflect.Value) (string, error) {
	if t == durationType {
		return v.Interface().(time.Duration).String(), nil
	}
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return "", err
	}
	if string(data) == "null" {
		return "", nil
	}
	if isText(t) {
		var text string
		if err := json.Unmarshal(data, &text); err == nil {
			return text, nil
		}
	}
	return string(data), nil
}

// decode sets a value from parameters. A missing or empty parameter leaves its field
// unchanged, except for texts.
func (s shape) decode(params map[string]string, v reflect.Value) error {
	if s.whole {
		return decodeOne(wholeParam, params[wholeParam], v)
	}
	for _, f := range s.fields {
		if err := decodeOne(f.name, params[f.name], v.Field(f.index)); err != nil {
			return err
		}
	}
	return nil
}

func decodeOne(name, text string, v reflect.Value) error {
	if text == "" {
		return nil
	}
	if v.Type() == durationType {
		if d, err := time.ParseDuration(text); err == nil {
			v.SetInt(int64(d))
			return nil
		}
	}
	data := []byte(text)
	if isText(v.Type()) {
		data, _ = json.Marshal(text) // a text always encodes
	}
	if err := json.Unmarshal(data, v.Addr().Interface()); err != nil {
		return fmt.Errorf("parameter %s: %q is not a value of %s: %w", name, text, v.Type(), err)
	}
	return nil
}

// declared returns the declarations of the parameters of a value, with it as their defaults.
func declared(in any) (map[string]job.Param, error) {
	values, err := valuesOf(in)
	if err != nil {
		return nil, err
	}
	params := make(map[string]job.Param, len(values))
	for name, text := range values {
		params[name] = job.Param{Default: text}
	}
	return params, nil
}

// valuesOf returns the parameters of a value.
func valuesOf(in any) (map[string]string, error) {
	v := reflect.ValueOf(in)
	if !v.IsValid() {
		return nil, nil
	}
	if slices.Contains(unsupportedFields, v.Kind()) {
		return nil, fmt.Errorf("a value of %s cannot be the input of a handler", v.Type())
	}
	values, err := shapeOf(v.Type()).encode(v)
	if err != nil {
		return nil, fmt.Errorf("encode the input of type %s: %w", v.Type(), err)
	}
	return maps.Clone(values), nil
}
