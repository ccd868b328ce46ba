package config

import (
	"reflect"
	"slices"
	"strings"
)

// Field is a field of a [Server], as its file has it.
type Field struct {
	Name    string // such as keep.for
	Doc     string // what it means
	Default string // the default in words; "" for none
	Why     string // the reason for the default
	Flag    string // the flag of belfry serve, without its dashes; "" for none
	Env     string // the environment variable; "" for none

	// Reload reports whether a running server accepts a change of the field.
	Reload bool

	secret bool // its values are hidden
	index  []int
}

// Fields returns the fields of a [Server] in their order.
func Fields() []Field {
	return fieldsOf(reflect.TypeFor[Server](), "", nil)
}

func fieldsOf(t reflect.Type, path string, index []int) (list []Field) {
	own := reflect.TypeFor[Server]().PkgPath()
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := append(index[:len(index):len(index)], i)
		if f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == own {
			list = append(list, fieldsOf(f.Type, path+name+".", at)...)
			continue
		}
		list = append(list, Field{
			Name: path + name, Doc: f.Tag.Get("doc"), Default: f.Tag.Get("default"), Why: f.Tag.Get("why"),
			Flag: f.Tag.Get("flag"), Env: f.Tag.Get("env"), Reload: f.Tag.Get("reload") != "", secret: f.Tag.Get("secret") != "", index: at,
		})
	}
	return list
}

// in returns the value of the field.
func (f *Field) in(s *Server) reflect.Value { return reflect.ValueOf(s).Elem().FieldByIndex(f.index) }

// Changed returns the fields that differ between two configurations.
func Changed(a, b Server) []Field {
	return slices.DeleteFunc(Fields(), func(f Field) bool {
		return reflect.DeepEqual(f.in(&a).Interface(), f.in(&b).Interface())
	})
}

// Setting is the value of a field with its source.
type Setting struct {
	Field
	// Value is nil if unset and without default.
	Value any
	// From is default, or the flag, variable or file of the value.
	From string
}

// Layers are the values in each place of the configuration.
type Layers struct {
	Flags, Env, File Server
	// FileName is the user's name for the file.
	FileName string
}

// Settings returns the result of the layers field by field, with the source of each value.
// Secrets are hidden.
func (l *Layers) Settings(result Server) []Setting {
	var list []Setting
	for _, f := range Fields() {
		s := Setting{Field: f, From: l.from(&f)}
		if v := f.in(&result); !v.IsZero() {
			s.Value = shown(v.Interface(), f.secret)
		}
		list = append(list, s)
	}
	return list
}

// NameOf returns a field's name in its source: the flag, the variable, or the file
// and the field's name in it.
func (l *Layers) NameOf(name string) string {
	for _, f := range Fields() {
		if f.Name != name {
			continue
		}
		if from := l.from(&f); from != l.FileName {
			return from
		}
		return l.FileName + ": " + name
	}
	return name
}

// from returns the source of a field.
func (l *Layers) from(f *Field) string {
	switch {
	case !f.in(&l.Flags).IsZero():
		return "--" + f.Flag
	case !f.in(&l.Env).IsZero():
		return f.Env
	case !f.in(&l.File).IsZero():
		return l.FileName
	}
	return "default"
}

// Hidden replaces secret values.
const Hidden = "xxxxx"

// shown returns a value without its secrets: the password of a URL, and the values, not the
// names, of a map with secrets.
func shown(value any, secret bool) any {
	switch v := value.(type) {
	case Store:
		return v.Shown()
	case History:
		if v == "" {
			return ""
		}
		return v.Shown()
	case Password:
		return Hidden
	case map[string]string:
		if secret {
			names := make(map[string]string, len(v))
			for name := range v {
				names[name] = Hidden
			}
			return names
		}
	}
	return value
}
