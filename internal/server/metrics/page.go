package metrics

import (
	"bytes"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Kind is the kind of a [Family].
type Kind string

// The kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Family is a metric with its samples.
type Family struct {
	Name    string
	Kind    Kind
	Help    string
	Samples []Sample
}

// IsOwn reports whether a metric is about Belfry, and not about the process or Go.
func (f *Family) IsOwn() bool { return strings.HasPrefix(f.Name, "belfry_") }

// Sample is a value of a metric.
type Sample struct {
	Labels []string // pairs of name and value
	Value  float64  // of a histogram, the sum
	// Buckets are the counts of a histogram by [Bounds], and of larger values. None includes the others.
	Buckets []uint64
}

// page collects families in their order.
type page struct {
	families []Family
}

// family begins a metric. Its samples follow.
func (p *page) family(name string, k Kind, help string) {
	p.families = append(p.families, Family{Name: name, Kind: k, Help: help})
}

// sample adds a value of the latest family, with pairs of label and value.
func (p *page) sample(value float64, labels ...string) { p.add(Sample{Labels: labels, Value: value}) }

func (p *page) add(s Sample) {
	f := &p.families[len(p.families)-1]
	f.Samples = append(f.Samples, s)
}

// text is an answer in the text format of Prometheus, version 0.0.4: a sequence of families, each
// with its help.
type text struct{ bytes.Buffer }

// textOf returns families in the text format of Prometheus.
func textOf(families []Family) []byte {
	var t text
	for i := range families {
		f := &families[i]
		t.WriteString("# HELP " + f.Name + " " + f.Help + "\n# TYPE " + f.Name + " " + string(f.Kind) + "\n")
		for _, s := range f.Samples {
			if f.Kind == Histogram {
				t.histogram(f.Name, s)
			} else {
				t.sample(f.Name, s.Value, s.Labels...)
			}
		}
	}
	return t.Bytes()
}

func (t *text) sample(name string, value float64, labels ...string) {
	t.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		between := ","
		if i == 0 {
			between = "{"
		}
		t.WriteString(between + labels[i] + `="` + escape.Replace(labels[i+1]) + `"`)
	}
	if len(labels) > 0 {
		t.WriteByte('}')
	}
	t.WriteByte(' ')
	t.Write(strconv.AppendFloat(t.AvailableBuffer(), value, 'g', -1, 64))
	t.WriteByte('\n')
}

// histogram writes the buckets for Prometheus, each including the previous ones.
func (t *text) histogram(name string, s Sample) {
	labels := s.Labels[:len(s.Labels):len(s.Labels)]
	total := uint64(0)
	for i, n := range s.Buckets {
		total += n
		le := "+Inf"
		if i < len(bounds) {
			le = strconv.FormatFloat(bounds[i].Seconds(), 'g', -1, 64)
		}
		t.sample(name+"_bucket", float64(total), append(labels, "le", le)...)
	}
	t.sample(name+"_sum", s.Value, labels...)
	t.sample(name+"_count", float64(total), labels...)
}

// escape makes a text the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// bounds are the upper bounds of the buckets, from the latency of a good disk to the delay after an
// hour's outage: wide enough for calls of a store and for starts, and so few that each histogram
// costs 18 series.
var bounds = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, 5 * time.Minute,
}

// Bounds returns the upper bounds of the buckets of histograms, in seconds.
func Bounds() []float64 {
	list := make([]float64, len(bounds))
	for i, b := range bounds {
		list[i] = b.Seconds()
	}
	return list
}

// latencies is a histogram of durations. Its zero value is ready, and any number
// of goroutines may use it.
type latencies struct {
	buckets [len(bounds) + 1]atomic.Uint64 // without the previous buckets
	sum     atomic.Int64                   // in nanoseconds
}

func (l *latencies) observe(d time.Duration) {
	d = max(0, d) // clocks are set
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	l.buckets[i].Add(1)
	l.sum.Add(int64(d))
}

// write adds the histogram to the latest family.
func (l *latencies) write(p *page, labels ...string) {
	s := Sample{Labels: labels, Value: time.Duration(l.sum.Load()).Seconds(), Buckets: make([]uint64, len(l.buckets))}
	for i := range l.buckets {
		s.Buckets[i] = l.buckets[i].Load()
	}
	p.add(s)
}
