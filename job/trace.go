package job

import (
	"maps"
	"strings"
)

// MetadataPrefix begins the names of a run's metadata, such as a trace, among its
// parameters. No job can declare a parameter with such a name.
const MetadataPrefix = "meta."

// The bounds of a [Trace] that is kept with a run, as W3C recommends them. Baggage may be larger there,
// but each run that follows has a copy.
const (
	traceParentLength = 55
	traceStateMax     = 512
	baggageMax        = 1024
)

// Trace is the context of a trace as in W3C's Trace Context and Baggage: the values of the headers
// traceparent, tracestate and baggage. Its zero value is none.
type Trace struct {
	Parent, State, Baggage string
}

// The names of the headers, which are also those of metadata.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
	baggage     = "baggage"
)

// Headers returns the headers that are not empty.
func (t Trace) Headers() map[string]string {
	if t == (Trace{}) {
		return nil
	}
	headers := map[string]string{traceParent: t.Parent, traceState: t.State, baggage: t.Baggage}
	maps.DeleteFunc(headers, func(_, value string) bool { return value == "" })
	return headers
}

// Kept returns what a run keeps of the trace of its request: headers that are too long or no text
// are left out.
func (t Trace) Kept() Trace {
	if len(t.Parent) != traceParentLength || !isVisible(t.Parent) {
		t.Parent = ""
	}
	if t.Parent == "" || len(t.State) > traceStateMax || !isVisible(t.State) {
		t.State = ""
	}
	if len(t.Baggage) > baggageMax || !isVisible(t.Baggage) {
		t.Baggage = ""
	}
	return t
}

func isVisible(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// TraceOf returns the trace in the metadata of a run with these parameters.
func TraceOf(params map[string]string) Trace {
	return Trace{Parent: params[MetadataPrefix+traceParent], State: params[MetadataPrefix+traceState], Baggage: params[MetadataPrefix+baggage]}
}

// WithTrace returns parameters of a run whose metadata has the trace.
func WithTrace(params map[string]string, t Trace) map[string]string {
	params = maps.Clone(params)
	if params == nil {
		params = map[string]string{}
	}
	for name, value := range t.Headers() {
		params[MetadataPrefix+name] = value
	}
	return params
}
