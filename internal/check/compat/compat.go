// Package compat names what breaks the callers of a released API or the documents of a released schema. It compares descriptions, and
// knows nothing about what a server does with them.
package compat

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

type object = map[string]any

// API returns the differences between two descriptions in OpenAPI that break a caller of the old one.
func API(before, after []byte) ([]string, error) {
	c, err := newComparison(before, after)
	if err != nil {
		return nil, err
	}
	was, is := get(c.before, "paths"), get(c.after, "paths")
	for _, path := range sorted(was) {
		if is[path] == nil {
			c.breaks(path, "is gone")
			continue
		}
		for _, method := range sorted(get(was, path)) {
			c.operation(strings.ToUpper(method)+" "+path, get(was, path, method), get(is, path, method))
		}
	}
	return c.found, nil
}

// Schema returns the differences between two JSON schemas for which a document that was valid may be refused.
func Schema(before, after []byte) ([]string, error) {
	c, err := newComparison(before, after)
	if err != nil {
		return nil, err
	}
	c.schema("document", c.before, c.after, sent)
	return c.found, nil
}

// A direction is who writes a value: what a caller sends must still be accepted, what it receives still be there.
type direction bool

const (
	sent     direction = true
	received direction = false
)

type comparison struct {
	before, after object
	found         []string
	done          map[string]bool // references that were compared
}

func newComparison(before, after []byte) (*comparison, error) {
	c := &comparison{done: map[string]bool{}}
	if err := json.Unmarshal(before, &c.before); err != nil {
		return nil, err
	}
	return c, json.Unmarshal(after, &c.after)
}

func (c *comparison) breaks(where, format string, args ...any) {
	if text := where + ": " + fmt.Sprintf(format, args...); !slices.Contains(c.found, text) {
		c.found = append(c.found, text)
	}
}

// roles from the least: an operation names the least one that it needs.
var roles = []string{"viewer", "runner", "admin"}

func (c *comparison) operation(where string, was, is object) {
	if is == nil {
		c.breaks(where, "is gone")
		return
	}
	if old, now := role(was), role(is); now != old && slices.Index(roles, now) >= slices.Index(roles, old) {
		c.breaks(where, "needs the role %q, it was %q", now, old)
	}
	c.parameters(where, was, is)
	body, now := c.old(get(was, "requestBody")), c.new(get(is, "requestBody"))
	if now["required"] == true && body["required"] != true {
		c.breaks(where, "needs a body")
	}
	c.contents(where+" body", body, now, sent)
	for _, status := range sorted(get(was, "responses")) {
		if !strings.HasPrefix(status, "2") {
			continue // problems have one form, and may be others
		}
		answer := c.new(get(is, "responses", status))
		if answer == nil {
			c.breaks(where, "answers %s no more", status)
			continue
		}
		c.contents(where+" "+status, c.old(get(was, "responses", status)), answer, received)
	}
}

func role(operation object) string {
	for _, either := range list(operation, "security") {
		if scopes := list(asObject(either), "token"); len(scopes) > 0 {
			return fmt.Sprint(scopes[0])
		}
	}
	return ""
}

func (c *comparison) parameters(where string, was, is object) {
	named := func(operation object, resolve func(object) object) map[string]object {
		all := map[string]object{}
		for _, p := range list(operation, "parameters") {
			p := resolve(asObject(p))
			all[fmt.Sprintf("%v parameter %v", p["in"], p["name"])] = p
		}
		return all
	}
	old, now := named(was, c.old), named(is, c.new)
	for _, name := range sorted(old) {
		if now[name] == nil {
			c.breaks(where, "the %s is gone", name)
			continue
		}
		c.schema(where+" "+name, get(old[name], "schema"), get(now[name], "schema"), sent)
	}
	for _, name := range sorted(now) {
		if now[name]["required"] == true && (old[name] == nil || old[name]["required"] != true) {
			c.breaks(where, "the %s is required", name)
		}
	}
}

func (c *comparison) contents(where string, was, is object, by direction) {
	for _, kind := range sorted(get(was, "content")) {
		now := get(is, "content", kind)
		if now == nil {
			c.breaks(where, "%s is gone", kind)
			continue
		}
		c.schema(where, get(was, "content", kind, "schema"), get(now, "schema"), by)
	}
}

// The bounds of a value, with the sign of a change that makes them narrower.
var bounds = map[string]float64{
	"minimum": 1, "exclusiveMinimum": 1, "minLength": 1, "minItems": 1, "minProperties": 1,
	"maximum": -1, "exclusiveMaximum": -1, "maxLength": -1, "maxItems": -1, "maxProperties": -1,
}

// What is compared as a whole: whether one form accepts less than another cannot be told in general.
var whole = []string{"pattern", "const", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "propertyNames", "uniqueItems"}

func (c *comparison) schema(where string, was, is object, by direction) {
	pair := fmt.Sprint(was["$ref"], is["$ref"], by)
	if was["$ref"] != nil {
		if c.done[pair] {
			return
		}
		c.done[pair] = true
		where = fmt.Sprint(was["$ref"])[strings.LastIndexByte(fmt.Sprint(was["$ref"]), '/')+1:]
	}
	was, is = c.old(was), c.new(is)
	if was == nil || is == nil {
		return // anything is accepted
	}
	c.values(where, was, is, by)
	c.properties(where, was, is, by)
	for _, key := range []string{"items", "additionalProperties"} {
		old, now := get(was, key), get(is, key)
		switch {
		case by == sent && is[key] == false && was[key] != false:
			c.breaks(where, "%s are refused", key)
		case old != nil && now != nil:
			c.schema(where+"[]", old, now, by)
		}
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		old, now := list(was, key), list(is, key)
		if by == sent && len(now) < len(old) && key != "allOf" {
			c.breaks(where, "%s has %d forms, it had %d", key, len(now), len(old))
		}
		for i := range min(len(old), len(now)) {
			c.schema(where, asObject(old[i]), asObject(now[i]), by)
		}
	}
	for _, key := range whole {
		if by == sent && is[key] != nil && !reflect.DeepEqual(was[key], is[key]) {
			c.breaks(where, "%s is another one", key)
		}
	}
}

// values compares types, lists of values and bounds.
func (c *comparison) values(where string, was, is object, by direction) {
	narrow, wide := was, is
	if by == received {
		narrow, wide = is, was
	}
	for _, kind := range types(narrow) {
		accepted := types(wide)
		if len(accepted) > 0 && !slices.Contains(accepted, kind) && (kind != "integer" || !slices.Contains(accepted, "number")) {
			c.breaks(where, "its type is %v, it was %v", types(is), types(was))
			break
		}
	}
	if by == received {
		return // an answer may have a new value, and other bounds
	}
	if values := list(is, "enum"); values != nil {
		old := list(was, "enum")
		if old == nil {
			c.breaks(where, "only some values are accepted")
		}
		for _, v := range old {
			if !slices.Contains(values, v) {
				c.breaks(where, "the value %v is refused", v)
			}
		}
	}
	for _, name := range sorted(bounds) {
		now, bounded := is[name].(float64)
		old, before := was[name].(float64)
		if bounded && (!before || (now-old)*bounds[name] > 0) {
			c.breaks(where, "%s is %v, it was %v", name, is[name], was[name])
		}
	}
}

func (c *comparison) properties(where string, was, is object, by direction) {
	old, now := get(was, "properties"), get(is, "properties")
	for _, name := range sorted(old) {
		if now[name] == nil {
			c.breaks(where, "the field %s is gone", name)
			continue
		}
		c.schema(where+"."+name, get(old, name), get(now, name), by)
	}
	less, more := list(was, "required"), list(is, "required")
	if by == received {
		less, more = more, less
	}
	for _, name := range more {
		switch {
		case slices.Contains(less, name):
		case by == sent:
			c.breaks(where, "the field %v is required", name)
		case now[name.(string)] != nil:
			c.breaks(where, "the field %v may be missing", name)
		}
	}
}

func (c *comparison) old(o object) object { return resolved(c.before, o) }
func (c *comparison) new(o object) object { return resolved(c.after, o) }

// resolved follows a reference.
func resolved(root, o object) object {
	for {
		ref, ok := o["$ref"].(string)
		if !ok {
			return o
		}
		o = get(root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
}

func types(o object) (all []string) {
	switch t := o["type"].(type) {
	case string:
		all = []string{t}
	case []any:
		for _, one := range t {
			all = append(all, fmt.Sprint(one))
		}
	}
	return all
}

func get(o object, path ...string) object {
	for _, key := range path {
		o = asObject(o[key])
	}
	return o
}

func asObject(v any) object { o, _ := v.(object); return o }

func list(o object, key string) []any { l, _ := o[key].([]any); return l }

func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
