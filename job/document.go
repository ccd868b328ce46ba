package job

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Document is one job, calendar, pool, window, channel, hook or list of executors, as in files and the API.
// Exactly one of the seven is not nil, as [Kind] says; documents made in code may leave [Kind] empty.
type Document struct {
	Kind      Kind
	Job       *Job
	Calendar  *Calendar
	Pool      *Pool
	Window    *Window
	Channel   *Channel
	Hook      *Hook
	Executors *Executors

	File string // the name given to Decode
	Line int    // line of its beginning; 0 if it was not read from text

	// source is the parsed text of the document, for the positions of problems.
	source *node
	// broken are the paths of fields that [Decode] could not read.
	broken []string
}

// Kind is the kind of a document.
type Kind string

// The kinds of documents.
const (
	KindJob       Kind = "job"
	KindCalendar  Kind = "calendar"
	KindPool      Kind = "pool"
	KindWindow    Kind = "window"
	KindChannel   Kind = "channel"
	KindHook      Kind = "hook"
	KindExecutors Kind = "executors"
)

// Values returns all kinds of documents.
func (Kind) Values() []string {
	return texts(KindJob, KindCalendar, KindPool, KindWindow, KindChannel, KindHook, KindExecutors)
}

// Plural returns the plural of a kind, for paths and sentences.
func (k Kind) Plural() string { return strings.TrimSuffix(string(k), "s") + "s" }

// Format is a notation of documents.
type Format string

// The notations of documents.
const (
	YAML Format = "yaml"
	JSON Format = "json"
)

// Values returns all notations.
func (Format) Values() []string { return texts(YAML, JSON) }

// FullName returns "namespace/name" of the document.
func (d Document) FullName() string {
	switch {
	case d.Job != nil:
		return d.Job.FullName()
	case d.Calendar != nil:
		return d.Calendar.FullName()
	case d.Pool != nil:
		return d.Pool.FullName()
	case d.Window != nil:
		return d.Window.FullName()
	case d.Channel != nil:
		return d.Channel.FullName()
	case d.Hook != nil:
		return d.Hook.FullName()
	case d.Executors != nil:
		return d.Executors.FullName()
	}
	return ""
}

// IsNamed reports whether the document has a readable name.
func (d Document) IsNamed() bool { return *d.head().name != "" }

// Version returns the version of the document, or 0 if it is not from a server.
func (d Document) Version() int64 { return *d.head().version }

// PutIn sets the namespace of the document, unless it has one.
func (d Document) PutIn(namespace string) {
	if in := d.head().namespace; *in == "" {
		*in = namespace
	}
}

// PutAt names the document, as far as its text does not.
func (d Document) PutAt(namespace, name string) {
	h := d.head()
	if d.omits("namespace") {
		*h.namespace = namespace
	}
	if d.omits("name") {
		*h.name = name
	}
}

// omits reports whether the text of the document leaves a field out, or to null.
func (d Document) omits(field string) bool {
	return !d.Says(field) || d.source.get(field).kind == nullNode
}

// UID returns the identity of the document, or zero if it is not from a server.
func (d Document) UID() ID { return *d.head().uid }

// Content returns the *Job, *Calendar, *Pool, *Window, *Channel, *Hook or *Executors of the document, or
// an empty one of its [Kind] if it has none.
func (d *Document) Content() any { return d.body().Addr().Interface() }

// Bare returns a copy of the document without the server's additions: identity, version,
// status and source.
func (d Document) Bare() Document { return d.As(ID{}, 0) }

// From returns the commit of a repository that a document other than a job is of, nil for none.
func (d Document) From() *Source { return *d.head().source }

// CameFrom returns a copy of a document other than a job that is of a commit, nil for none.
func (d Document) CameFrom(from *Source) Document {
	d = d.As(d.UID(), d.Version())
	*d.head().source = from
	return d
}

// As returns a copy of the document with its [Kind] and another identity and version, and
// without status and source.
func (d Document) As(uid ID, version int64) Document {
	d.Kind = d.kind()
	switch {
	case d.Job != nil:
		j := *d.Job
		j.Status = nil
		d.Job = &j
	case d.Calendar != nil:
		c := *d.Calendar
		d.Calendar = &c
	case d.Pool != nil:
		p := *d.Pool
		d.Pool = &p
	case d.Window != nil:
		w := *d.Window
		d.Window = &w
	case d.Channel != nil:
		c := *d.Channel
		d.Channel = &c
	case d.Hook != nil:
		h := *d.Hook
		d.Hook = &h
	case d.Executors != nil:
		e := *d.Executors
		d.Executors = &e
	}
	h := d.head()
	*h.uid, *h.version, *h.source = uid, version, nil
	return d
}

// head has the common fields of documents.
type head struct {
	namespace *string
	name      *string
	uid       *ID
	version   *int64
	source    **Source // of kinds without status
}

func (d Document) head() head {
	switch {
	case d.Job != nil:
		return head{&d.Job.Namespace, &d.Job.Name, &d.Job.UID, &d.Job.Version, new(*Source)}
	case d.Calendar != nil:
		return head{&d.Calendar.Namespace, &d.Calendar.Name, &d.Calendar.UID, &d.Calendar.Version, &d.Calendar.Source}
	case d.Pool != nil:
		return head{&d.Pool.Namespace, &d.Pool.Name, &d.Pool.UID, &d.Pool.Version, &d.Pool.Source}
	case d.Window != nil:
		return head{&d.Window.Namespace, &d.Window.Name, &d.Window.UID, &d.Window.Version, &d.Window.Source}
	case d.Channel != nil:
		return head{&d.Channel.Namespace, &d.Channel.Name, &d.Channel.UID, &d.Channel.Version, &d.Channel.Source}
	case d.Hook != nil:
		return head{&d.Hook.Namespace, &d.Hook.Name, &d.Hook.UID, &d.Hook.Version, &d.Hook.Source}
	case d.Executors != nil:
		return head{&d.Executors.Namespace, &d.Executors.Name, &d.Executors.UID, &d.Executors.Version, &d.Executors.Source}
	}
	return head{new(string), new(string), new(ID), new(int64), new(*Source)}
}

// Says reports whether a document that was read from text has a top-level field, even a
// zero one: in an edit of a paused job, "paused: false" differs from no field.
func (d Document) Says(field string) bool { return d.source != nil && d.source.get(field) != nil }

// WithoutSource returns the document without its parsed text, which takes more memory than
// the document. Says does not work on it, and its mistakes have no position.
func (d Document) WithoutSource() Document {
	d.source, d.broken = nil, nil
	return d
}

// Place returns the position of a field named by a JSON pointer, or of its nearest
// existing parent, as file:line:column, for mistakes that the caller found.
func (d Document) Place(pointer string) string {
	here := d.source
	switch {
	case here == nil && d.Line > 0:
		return fmt.Sprintf("%s:%d", d.File, d.Line)
	case here == nil:
		return d.File
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		next := here.get(unescape.Replace(step))
		if i, err := strconv.Atoi(step); err == nil && here.kind == listNode && i >= 0 && i < len(here.entries) {
			next = here.entries[i].value
		}
		if next == nil {
			break
		}
		here = next
	}
	return fmt.Sprintf("%s:%d:%d", d.File, here.line, here.column)
}

// Decode reads the documents of a file: YAML with one or more documents, or JSON with an
// object, an array of objects, or a sequence of these. The extension .json, .yaml or .yml
// decides; without one the file is JSON if it begins with { or [ followed by a quote,
// which is rare in YAML.
//
// The error is of type [Problems] and has every field that is unknown, duplicate or of a
// wrong type. Decode also returns the readable parts of documents with mistakes, so that
// [Document.Validate] can report further ones; it does not repeat what Decode reported. Decode
// does not validate values.
func Decode(file string, data []byte) ([]Document, error) { return DecodeAs(KindJob, file, data) }

// DecodeAs is [Decode] for documents that are of a kind unless they say another.
func DecodeAs(kind Kind, file string, data []byte) ([]Document, error) {
	d := &decoder{file: file, kind: kind}
	docs := d.documents(d.parse(data))
	return docs, d.problems.asError()
}

// documents returns the documents of the parsed nodes, as far as they can be read.
func (d *decoder) documents(nodes []*node) []Document {
	var docs []Document
	for _, n := range nodes {
		switch n.kind {
		case nullNode: // empty between two separators
		case listNode:
			for _, item := range n.entries {
				docs = d.document(docs, item.value)
			}
		default:
			docs = d.document(docs, n)
		}
	}
	return docs
}

// parse returns the documents of a file as they were written. It reports a mistake in the notation,
// and returns the documents before it.
func (d *decoder) parse(data []byte) []*node {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(data) > fileMax {
		d.report(&node{}, root, phrase.TooManyBytes.Of(len(data), fileMax))
		return nil
	}
	if !utf8.Valid(data) {
		d.report(&node{}, root, phrase.NotUTF8)
		return nil
	}
	parse := parseYAML
	if isJSON(d.file, data) {
		parse = parseJSON
	}
	nodes, bad := parse(data)
	if bad != nil {
		d.report(&node{line: int32(bad.line), column: int32(bad.column)}, root, bad.message, bad.hint)
	}
	return nodes
}

func isJSON(file string, data []byte) bool {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".json":
		return true
	case ".yaml", ".yml":
		return false
	}
	const space = " \t\r\n"
	data = bytes.TrimLeft(data, space)
	if len(data) == 0 || data[0] != '{' && data[0] != '[' {
		return false
	}
	// YAML has brackets as well, and keys without quotes in them.
	data = bytes.TrimLeft(data, space+"{[")
	return len(data) == 0 || bytes.IndexByte([]byte(`"}]`), data[0]) >= 0
}

// document appends the document of a node, as far as it can be read.
func (d *decoder) document(docs []Document, n *node) []Document {
	doc := Document{Kind: cmp.Or(d.kind, KindJob), File: d.file, Line: int(n.line), source: n}
	before := len(d.broken)
	if kind := n.get("kind"); kind != nil && kind.kind != nullNode {
		d.decodeLeaf(kind, reflect.ValueOf(&doc.Kind).Elem(), root.field("kind"))
		if len(d.broken) > before {
			return docs // the meaning of its fields is unknown
		}
	}
	d.decodeStruct(withoutKind(n), doc.body(), root)
	doc.broken = d.broken[before:len(d.broken):len(d.broken)]
	return append(docs, doc)
}

// withoutKind returns a document without its field kind, which belongs to no type.
func withoutKind(n *node) *node {
	kind := slices.IndexFunc(n.entries, func(e entry) bool { return n.kind == mappingNode && e.key.text == "kind" })
	if kind < 0 {
		return n
	}
	rest := *n
	rest.entries = slices.Concat(n.entries[:kind], n.entries[kind+1:])
	return &rest
}

// kind returns the kind of the document, which [Kind] may omit if a field is set.
func (d Document) kind() Kind {
	switch {
	case d.Job != nil:
		return KindJob
	case d.Calendar != nil:
		return KindCalendar
	case d.Pool != nil:
		return KindPool
	case d.Window != nil:
		return KindWindow
	case d.Channel != nil:
		return KindChannel
	case d.Hook != nil:
		return KindHook
	case d.Executors != nil:
		return KindExecutors
	}
	return d.Kind
}

// body returns the settable struct of the document, and allocates it if necessary.
func (d *Document) body() reflect.Value {
	switch d.kind() {
	case KindCalendar:
		d.Calendar = orNew(d.Calendar)
		return reflect.ValueOf(d.Calendar).Elem()
	case KindPool:
		d.Pool = orNew(d.Pool)
		return reflect.ValueOf(d.Pool).Elem()
	case KindWindow:
		d.Window = orNew(d.Window)
		return reflect.ValueOf(d.Window).Elem()
	case KindChannel:
		d.Channel = orNew(d.Channel)
		return reflect.ValueOf(d.Channel).Elem()
	case KindHook:
		d.Hook = orNew(d.Hook)
		return reflect.ValueOf(d.Hook).Elem()
	case KindExecutors:
		d.Executors = orNew(d.Executors)
		return reflect.ValueOf(d.Executors).Elem()
	}
	d.Job = orNew(d.Job)
	return reflect.ValueOf(d.Job).Elem()
}

func orNew[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}

// Encode writes documents so that [Decode] reads the same values. Unset fields are omitted, and
// others written in the order of the types. YAML separates documents by "---"; JSON is an object
// for one document, or an array.
func Encode(w io.Writer, docs []Document, format Format) error {
	nodes := make([]*node, len(docs))
	for i, d := range docs {
		nodes[i] = d.node()
	}
	switch format {
	case YAML:
		return writeYAML(w, nodes)
	case JSON:
		return writeJSON(w, nodes)
	}
	return fmt.Errorf("encode documents: format %q is not known", format)
}

// AppendJSON appends a document on one line, as JSON has it.
func AppendJSON(b []byte, d Document) []byte {
	b = appendJSONText(append(b, `{"kind":`...), string(d.kind()))
	b, _, _ = appendFields(append(b, ','), d.body())
	return append(bytes.TrimSuffix(b, []byte(",")), '}')
}

// node returns the tree of a document for writing.
func (d Document) node() *node {
	n := object("kind", textNode(string(d.kind())))
	n.addFields(d.body())
	return n
}
