package pods

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// fields is the table by which package job checks templates of pods.
const fields = "../../../job/podfields.txt"

// TestTheTableOfPodsHasTheFieldsOfKubernetes compares the table with the types of Kubernetes.
func TestTheTableOfPodsHasTheFieldsOfKubernetes(t *testing.T) {
	types := map[reflect.Type]string{}
	kindOf(reflect.TypeFor[corev1.PodTemplateSpec](), types)
	lines := make([]string, 0, len(types))
	for of, line := range types {
		lines = append(lines, of.Name()+line+"\n")
	}
	slices.Sort(lines)
	want := strings.Join(lines, "")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(fields, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(fields)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s is not what k8s.io/api has: UPDATE=1 go -C test/kubernetes test ./pods", fields)
	}
}

// kindOf returns the word of a type in the table, and adds a line for each structure in it.
func kindOf(of reflect.Type, types map[reflect.Type]string) string {
	switch name := of.String(); {
	case of.Kind() == reflect.Pointer:
		return kindOf(of.Elem(), types)
	case name == "resource.Quantity":
		return "quantity"
	case name == "intstr.IntOrString":
		return "port"
	case name == "v1.Time":
		return "text"
	case name == "v1.FieldsV1":
		return "any"
	}
	switch of.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "truth"
	case reflect.Int32, reflect.Int64:
		return "number"
	case reflect.Slice:
		return "[]" + kindOf(of.Elem(), types)
	case reflect.Map:
		return "{}" + kindOf(of.Elem(), types)
	case reflect.Struct:
		if _, known := types[of]; !known {
			types[of] = ""
			list := fieldsOf(of, types)
			slices.Sort(list)
			types[of] = " " + strings.Join(list, " ")
		}
		return of.Name()
	}
	panic(fmt.Sprint("no word for ", of))
}

func fieldsOf(of reflect.Type, types map[reflect.Type]string) (list []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case name == "" && f.Anonymous:
			list = append(list, fieldsOf(f.Type, types)...)
		default:
			list = append(list, name+":"+kindOf(f.Type, types))
		}
	}
	return list
}
