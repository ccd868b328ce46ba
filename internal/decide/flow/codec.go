package flow

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/belfry-cron/belfry/job"
)

// Each claim of a step reads the state of its flow, and each end reads and writes it. With
// encoding/json that took a third of a node's processor time. This is the same JSON, field by
// field.

// Append appends the state in JSON.
func (s *Saved) Append(to []byte) []byte {
	to = append(to, `{"steps":[`...)
	for i := range s.Steps {
		step := &s.Steps[i]
		to = append(appendComma(to), '{')
		to = appendText(appendName(to, "name"), step.Name)
		to = step.append(to)
		if len(step.Items) > 0 {
			to = append(appendName(to, "items"), '[')
			for k := range step.Items {
				it := &step.Items[k]
				to = it.append(append(appendComma(to), '{'))
				to = append(appendValue(appendName(to, "value"), it.Value), '}')
			}
			to = append(to, ']')
		}
		to = append(to, '}')
	}
	to = append(to, ']')
	to = appendField(to, "ending", string(s.Ending))
	to = appendField(to, "end_reason", s.EndReason.Stored())
	to = appendField(to, "cause", s.Cause)
	if s.Abandoned {
		to = append(appendName(to, "abandoned"), "true"...)
	}
	if len(s.Definition) > 0 {
		to = appendValue(appendName(to, "definition"), s.Definition)
	}
	to = appendNumber(to, "depth", int64(s.Depth))
	if len(s.Early) > 0 {
		to = appendAny(appendName(to, "early"), s.Early)
	}
	if s.Again != nil {
		to = appendAny(appendName(to, "again"), s.Again)
	}
	return append(to, '}')
}

func (u *Unit) append(to []byte) []byte {
	to = appendField(to, "mark", string(u.Mark))
	to = appendField(to, "outcome", string(u.Outcome))
	to = appendField(to, "reason", u.Reason.Stored())
	to = appendNumber(to, "attempt", int64(u.Attempt))
	if len(u.Result) > 0 {
		to = appendValue(appendName(to, "result"), u.Result)
	}
	to = appendNumber(to, "began", u.Began)
	to = appendNumber(to, "ended", u.Ended)
	if !u.From.IsZero() {
		to = appendText(appendName(to, "from"), u.From.String())
	}
	if !u.Run.IsZero() {
		to = appendText(appendName(to, "run"), u.Run.String())
	}
	return to
}

// appendComma appends a comma unless an object or a list has just begun.
func appendComma(to []byte) []byte {
	if last := to[len(to)-1]; last == '{' || last == '[' {
		return to
	}
	return append(to, ',')
}

func appendName(to []byte, name string) []byte {
	return append(append(append(appendComma(to), '"'), name...), `":`...)
}

func appendField(to []byte, name, value string) []byte {
	if value == "" {
		return to
	}
	return appendText(appendName(to, name), value)
}

func appendNumber(to []byte, name string, n int64) []byte {
	if n == 0 {
		return to
	}
	return strconv.AppendInt(appendName(to, name), n, 10)
}

func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return appendAny(to, text)
		}
	}
	return append(append(append(to, '"'), text...), '"')
}

// appendValue appends JSON without space between its parts.
func appendValue(to []byte, value json.RawMessage) []byte {
	if len(value) == 0 {
		return append(to, "null"...)
	}
	if !bytes.ContainsAny(value, " \t\r\n") {
		return append(to, value...)
	}
	into := bytes.NewBuffer(to)
	_ = json.Compact(into, value) // all values were decoded from JSON
	return into.Bytes()
}

// appendAny appends what can always be written.
func appendAny(to []byte, v any) []byte {
	text, _ := json.Marshal(v)
	return append(to, text...)
}

// Read reads a state in JSON. A text in another form than Append's is left to encoding/json.
func (s *Saved) Read(text []byte) error {
	r := reader{text: text}
	*s = Saved{}
	if r.saved(s); !r.failed && r.at == len(text) {
		return nil
	}
	*s = Saved{}
	return json.Unmarshal(text, s)
}

// reader reads JSON in the form of Append. After a failure it finds nothing more.
type reader struct {
	text   []byte
	at     int
	failed bool
}

// has consumes a text if it comes next.
func (r *reader) has(text string) bool {
	if r.failed || len(r.text)-r.at < len(text) || string(r.text[r.at:r.at+len(text)]) != text {
		return false
	}
	r.at += len(text)
	return true
}

func (r *reader) want(text string) {
	if !r.has(text) {
		r.failed = true
	}
}

// field consumes a field's name, with the comma before it, if it comes next.
func (r *reader) field(name string) bool {
	before := r.at
	if r.text[r.at-1] != '{' {
		if !r.has(",") {
			return false
		}
	}
	if r.has(`"`) && r.has(name) && r.has(`":`) {
		return true
	}
	r.at = before
	return false
}

// list calls one for each item of an open list.
func (r *reader) list(one func()) {
	for first := true; !r.failed && !r.has("]"); first = false {
		if !first {
			r.want(",")
		}
		one()
	}
}

func (r *reader) saved(s *Saved) {
	r.want(`{"steps":[`)
	s.Steps = make([]StepState, 0, 16)
	r.list(func() {
		s.Steps = append(s.Steps, StepState{})
		r.step(&s.Steps[len(s.Steps)-1])
	})
	if r.failed {
		return
	}
	if r.field("ending") {
		s.Ending = outcomeOf(r.string())
	}
	if r.field("end_reason") {
		s.EndReason = job.StoredReason(string(r.string()))
	}
	if r.field("cause") {
		s.Cause = string(r.string())
	}
	if r.field("abandoned") {
		r.want("true")
		s.Abandoned = true
	}
	if r.field("definition") {
		s.Definition = bytes.Clone(r.value())
	}
	if r.field("depth") {
		s.Depth = int(r.number())
	}
	if r.field("early") && json.Unmarshal(r.value(), &s.Early) != nil {
		r.failed = true
	}
	if r.field("again") && json.Unmarshal(r.value(), &s.Again) != nil {
		r.failed = true
	}
	r.want("}")
}

func (r *reader) step(s *StepState) {
	r.want(`{"name":`)
	s.Name = string(r.string())
	r.unit(&s.Unit)
	if r.field("items") {
		r.want("[")
		r.list(func() {
			s.Items = append(s.Items, Item{})
			it := &s.Items[len(s.Items)-1]
			r.want("{")
			r.unit(&it.Unit)
			if !r.field("value") {
				r.failed = true
			}
			it.Value = bytes.Clone(r.value())
			r.want("}")
		})
	}
	r.want("}")
}

func (r *reader) unit(u *Unit) {
	if r.failed {
		return
	}
	if r.field("mark") {
		u.Mark = markOf(r.string())
	}
	if r.field("outcome") {
		u.Outcome = outcomeOf(r.string())
	}
	if r.field("reason") {
		u.Reason = job.StoredReason(string(r.string()))
	}
	if r.field("attempt") {
		u.Attempt = int(r.number())
	}
	if r.field("result") {
		u.Result = bytes.Clone(r.value())
	}
	if r.field("began") {
		u.Began = r.number()
	}
	if r.field("ended") {
		u.Ended = r.number()
	}
	if r.field("from") && u.From.UnmarshalText(r.string()) != nil {
		r.failed = true
	}
	if r.field("run") && u.Run.UnmarshalText(r.string()) != nil {
		r.failed = true
	}
}

// string returns a text, which lasts as long as the JSON.
func (r *reader) string() []byte {
	r.want(`"`)
	for i := r.at; !r.failed && i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"':
			text := r.text[r.at:i]
			r.at = i + 1
			return text
		case c == '\\' || c < ' ' || c >= 0x7f:
			return r.escaped()
		}
	}
	r.failed = true
	return nil
}

// escaped returns the rest of a text with escapes, or with letters outside ASCII.
func (r *reader) escaped() []byte {
	r.at--
	var text string
	if json.Unmarshal(r.value(), &text) != nil {
		r.failed = true
	}
	return []byte(text)
}

func (r *reader) number() int64 {
	from := r.at
	for r.at < len(r.text) && (r.text[r.at] == '-' || r.text[r.at] >= '0' && r.text[r.at] <= '9') {
		r.at++
	}
	n, err := strconv.ParseInt(string(r.text[from:r.at]), 10, 64)
	if err != nil {
		r.failed = true
	}
	return n
}

// value returns any value verbatim. It finds its end without validating it.
func (r *reader) value() []byte {
	from, depth, inText := r.at, 0, false
	for i := r.at; !r.failed && i < len(r.text); i++ {
		c := r.text[i]
		switch {
		case inText && c == '\\':
			i++
			continue
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth == 0 { // the end of the enclosing value
				return r.until(from, i)
			}
			depth--
		case c == ',' && depth == 0:
			return r.until(from, i)
		}
	}
	r.failed = true
	return nil
}

func (r *reader) until(from, to int) []byte {
	if from == to {
		r.failed = true
	}
	r.at = to
	return r.text[from:to]
}

// markOf and outcomeOf return the values that exist without a copy.
func markOf(text []byte) Mark {
	for _, m := range [...]Mark{Succeeded, Open, Skipped, Failed, Blocked, Unneeded} {
		if string(text) == string(m) {
			return m
		}
	}
	return Mark(text)
}

func outcomeOf(text []byte) job.Outcome {
	for _, o := range [...]job.Outcome{job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeCancelled, job.OutcomeTimedOut, job.OutcomeLost} {
		if string(text) == string(o) {
			return o
		}
	}
	return job.Outcome(text)
}
