package metrics

import (
	"bytes"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// kind is what a metric is.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// page is an answer in the text format of Prometheus, version 0.0.4: a sequence of
// families, each with its help.
type page struct {
	b     bytes.Buffer
	names []string // names of the families, in order
}

// family begins a metric. Its samples follow.
func (p *page) family(name string, k kind, help string) {
	p.names = append(p.names, name)
	p.b.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + string(k) + "\n")
}

// sample writes a value of the latest family, with pairs of label and value. The
// suffix names a part of a histogram.
func (p *page) sample(suffix string, value float64, labels ...string) {
	p.b.WriteString(p.names[len(p.names)-1] + suffix)
	for i := 0; i < len(labels); i += 2 {
		between := ","
		if i == 0 {
			between = "{"
		}
		p.b.WriteString(between + labels[i] + `="` + escape.Replace(labels[i+1]) + `"`)
	}
	if len(labels) > 0 {
		p.b.WriteByte('}')
	}
	p.b.WriteByte(' ')
	p.b.Write(strconv.AppendFloat(p.b.AvailableBuffer(), value, 'g', -1, 64))
	p.b.WriteByte('\n')
}

// escape makes a text the value of a label.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (p *page) text() []byte { return p.b.Bytes() }

// bounds are the upper bounds of the buckets, from the latency of a good disk to the delay after an
// hour's outage: wide enough for calls of a store and for starts, and so few that each histogram
// costs 18 series.
var bounds = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, 5 * time.Minute,
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

// write writes the buckets for Prometheus, each including the previous ones.
func (l *latencies) write(p *page, labels ...string) {
	labels = labels[:len(labels):len(labels)]
	total := uint64(0)
	for i := range l.buckets {
		total += l.buckets[i].Load()
		le := "+Inf"
		if i < len(bounds) {
			le = strconv.FormatFloat(bounds[i].Seconds(), 'g', -1, 64)
		}
		p.sample("_bucket", float64(total), append(labels, "le", le)...)
	}
	p.sample("_sum", time.Duration(l.sum.Load()).Seconds(), labels...)
	p.sample("_count", float64(total), labels...)
}
