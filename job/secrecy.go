package job

import (
	"reflect"
	"strings"
)

// Secrecy is the part of a value that often is secret.
type Secrecy string

// The parts of a value that often are secret.
const (
	SecretNothing Secrecy = ""
	SecretValue   Secrecy = "value"   // all of it
	SecretAddress Secrecy = "address" // the user and query of a URL
)

// SecrecyOf returns the part of a job's field that often is secret. The path has the form
// run.env.TOKEN.
func SecrecyOf(place string) Secrecy {
	t := reflect.TypeFor[Job]()
	for step := range strings.SplitSeq(place, ".") {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || isText(t) {
			break
		}
		f := fieldNamed(fieldsOf(t), step)
		if f == nil {
			break
		}
		if f.secret != SecretNothing {
			return f.secret
		}
		t = f.typ
	}
	return SecretNothing
}
