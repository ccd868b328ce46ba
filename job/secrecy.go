package job

import (
	"reflect"
	"strings"
)

// Secrecy says what of a value often is a secret.
type Secrecy string

// What of a value often is a secret.
const (
	SecretNothing Secrecy = ""
	SecretValue   Secrecy = "value"   // all of it
	SecretAddress Secrecy = "address" // the user and the query of a URL
)

// SecrecyOf returns what of the value at a place in a job often is a secret. The place is
// written as in run.env.TOKEN.
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
