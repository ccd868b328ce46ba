package job

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
)

// Schema returns the JSON Schema (2020-12) of a document, for editors to check
// and complete job files. It is made from the types, and accepts what [Decode]
// accepts, except for null in place of fields that are not set.
func Schema() []byte {
	s := &schema{done: map[string]bool{}}
	calendar, pool, channel := s.ref(reflect.TypeFor[Calendar]()), s.ref(reflect.TypeFor[Pool]()), s.ref(reflect.TypeFor[Channel]())
	window, hook, executors, job := s.ref(reflect.TypeFor[Window]()), s.ref(reflect.TypeFor[Hook]()), s.ref(reflect.TypeFor[Executors]()), s.ref(reflect.TypeFor[Job]())
	root := object(
		"$schema", textNode("https://json-schema.org/draft/2020-12/schema"),
		"title", textNode("Belfry document"),
		"description", textNode("A job, calendar, pool, window, channel, hook or list of executors of Belfry. A file holds one or more of them."),
		"if", isKind(KindCalendar), "then", calendar,
		"else", object("if", isKind(KindPool), "then", pool,
			"else", object("if", isKind(KindWindow), "then", window,
				"else", object("if", isKind(KindChannel), "then", channel,
					"else", object("if", isKind(KindHook), "then", hook,
						"else", object("if", isKind(KindExecutors), "then", executors, "else", job))))),
		"$defs", &node{kind: mappingNode, entries: s.defs},
	)
	var b bytes.Buffer
	// Writing into memory cannot fail, and the nodes are of this file.
	_ = writeJSON(&b, []*node{root})
	return b.Bytes()
}

// isKind is the schema of documents with a kind.
func isKind(kind Kind) *node {
	return object(
		"properties", object("kind", object("const", textNode(string(kind)))),
		"required", list(textNode("kind")),
	)
}

// schema collects the definitions of types.
type schema struct {
	defs []entry
	done map[string]bool
}

// ref returns a reference to the definition of a struct or enumeration, and adds the definition
// if necessary.
func (s *schema) ref(t reflect.Type) *node {
	if !s.done[t.Name()] {
		s.done[t.Name()] = true
		i := len(s.defs)
		s.defs = append(s.defs, entry{key: textNode(t.Name())})
		if t.Implements(enumType) {
			s.defs[i].value = object("type", textNode("string"), "enum", list(textNodes(reflect.Zero(t).Interface().(enum).Values())...))
		} else {
			s.defs[i].value = s.structure(t)
		}
	}
	return object("$ref", textNode("#/$defs/"+t.Name()))
}

func (s *schema) structure(t reflect.Type) *node {
	properties := object()
	required := list()
	if t == reflect.TypeFor[Job]() || t == reflect.TypeFor[Calendar]() || t == reflect.TypeFor[Pool]() || t == reflect.TypeFor[Window]() || t == reflect.TypeFor[Channel]() || t == reflect.TypeFor[Hook]() || t == reflect.TypeFor[Executors]() {
		kind := s.value(reflect.TypeFor[Kind](), &field{})
		properties.add("kind", described("What the document describes. Default: job.", kind))
	}
	for _, f := range fieldsOf(t) {
		properties.add(f.name, described(f.doc, s.value(f.typ, f)))
		if f.required {
			required.entries = append(required.entries, entry{value: textNode(f.name)})
		}
	}
	definition := object("type", textNode("object"), "additionalProperties", plainNode("false"), "properties", properties)
	if len(required.entries) > 0 {
		definition.add("required", required)
	}
	return definition
}

// described returns a schema with its description first.
func described(doc string, schema *node) *node {
	n := object("description", textNode(doc))
	if strings.HasPrefix(doc, "Read-only.") {
		n.add("readOnly", plainNode("true"))
	}
	n.entries = append(n.entries, schema.entries...)
	return n
}

// value returns the schema of a field's value, or of an item of it.
func (s *schema) value(t reflect.Type, f *field) *node {
	switch {
	case t.Kind() == reflect.Pointer:
		return s.value(t.Elem(), f)
	case t.Implements(enumType):
		return s.ref(t)
	case t == timeType:
		return object("type", textNode("string"), "format", textNode("date-time"))
	case t == durationType:
		pattern := `([0-9]+(w|d|h|m|s|ms|us|ns))+|0`
		if f.max == Forever.String() {
			pattern += "|" + f.max
		}
		return anyOf(matching(pattern), object("const", plainNode("0")))
	case t == sizeType:
		return anyOf(matching(`[0-9]+([kKMGT]B|[KMGT]iB|B)?`), object("type", textNode("integer"), "minimum", plainNode("0")))
	case t == umaskType:
		return anyOf(matching(`(0o)?[0-7]+`), object("type", textNode("integer"), "minimum", plainNode("0")))
	case t == idType:
		return matching("[0-9A-Za-z]{26}")
	case t.Kind() == reflect.String:
		// YAML shows no difference between a text and a number.
		n := object("type", list(textNodes([]string{"string", "number", "boolean"})...))
		n.add("maxLength", plainNode(strconv.Itoa(f.bytes)))
		return n
	case t.Kind() == reflect.Bool:
		return object("type", textNode("boolean"))
	case t.Kind() == reflect.Float64:
		return f.between(object("type", textNode("number")))
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return f.between(object("type", textNode("integer")))
	case t.Kind() == reflect.Map:
		return object("type", textNode("object"), "additionalProperties", s.value(t.Elem(), f), "maxProperties", plainNode(strconv.Itoa(f.items)))
	case t.Kind() == reflect.Slice:
		item := s.value(t.Elem(), f)
		return anyOf(item, object("type", textNode("array"), "items", item, "minItems", plainNode("1"), "maxItems", plainNode(strconv.Itoa(f.items))))
	}
	if short := shortField(t); short != nil {
		return anyOf(s.text(short.typ, short), s.ref(t))
	}
	return s.ref(t)
}

// text returns the schema of the short form of a field: a text alone, not the field's own
// mapping or list.
func (s *schema) text(t reflect.Type, f *field) *node {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if short := shortField(t); short != nil {
		return s.text(short.typ, short)
	}
	return s.value(t, f)
}

// between adds the bounds of a number to its schema.
func (f *field) between(n *node) *node {
	if f.min != "" {
		n.add("minimum", plainNode(f.min))
	}
	if f.max != "" {
		n.add("maximum", plainNode(f.max))
	}
	return n
}

func anyOf(schemas ...*node) *node { return object("anyOf", list(schemas...)) }

func matching(pattern string) *node {
	return object("type", textNode("string"), "pattern", textNode("^("+pattern+")$"))
}
