package nodebench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Figure is a line of a table: the measured value, its goal, and the limit of this machine.
type Figure struct {
	What, Measured, Goal, Limit string
	missed                      bool
}

// fact is a figure without a goal.
func fact(what, measured string) Figure { return Figure{What: what, Measured: measured} }

// atMost is a time with a goal; 0 for none.
func atMost(what string, measured, goal time.Duration) Figure {
	f := fact(what, times(measured))
	if goal > 0 {
		f.Goal, f.missed = "≤ "+times(goal), measured > goal
	}
	return f
}

// below is a number with a goal that it is not to exceed.
func below(what string, measured, goal float64, digits int, unit string) Figure {
	return Figure{
		What: what, Measured: number(measured, digits) + unit, Goal: "≤ " + number(goal, digits) + unit, missed: measured > goal,
	}
}

// above is a figure that should reach goal; 0 means no goal.
func above(what string, measured, goal float64) Figure {
	f := fact(what, number(measured, 0))
	if goal > 0 {
		f.Goal, f.missed = "≥ "+number(goal, 0), measured < goal
	}
	return f
}

// share is above for a part of something else.
func share(what string, measured, goal float64) Figure {
	f := fact(what, number(measured, 2))
	if goal > 0 {
		f.Goal, f.missed = "≥ "+number(goal, 2), measured < goal
	}
	return f
}

// atMostTimes is a ratio that should not exceed a bound; 0 means no bound.
func atMostTimes(what string, measured, goal float64) Figure {
	if goal == 0 {
		return fact(what, number(measured, 2))
	}
	return below(what, measured, goal, 2, "")
}

// beside adds what the machine can do at most.
func (f Figure) beside(limit string) Figure {
	f.Limit = limit
	return f
}

// times formats a time: in milliseconds up to a second.
func times(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs < 10*time.Microsecond:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	case abs < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	case abs < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case abs < 10*time.Second:
		return number(float64(d)/1e6, 0) + " ms"
	default:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
}

// number writes a number with commas between thousands.
func number(v float64, digits int) string {
	whole, rest, _ := strings.Cut(strconv.FormatFloat(v, 'f', digits, 64), ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest != "" {
		whole += "." + rest
	}
	return whole
}

func writeTable(out io.Writer, figures []Figure) {
	fmt.Fprintln(out, "| | measured | goal | met | limit in the same run |")
	fmt.Fprintln(out, "|---|--:|--:|:-:|---|")
	for _, f := range figures {
		met := ""
		switch {
		case f.missed:
			met = "**no**"
		case f.Goal != "":
			met = "yes"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", f.What, f.Measured, cmp.Or(f.Goal, "-"), met, f.Limit)
	}
}

// lateness is how late starts were, the least first.
type lateness []time.Duration

func (l lateness) sort() lateness {
	slices.Sort(l)
	return l
}

// quantile returns the time that a share of the starts is not later than.
func (l lateness) quantile(share float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(len(l)-1, int(float64(len(l))*share))]
}

func (l lateness) String() string {
	return fmt.Sprintf("p50 %s, p99 %s", times(l.quantile(.5)), times(l.quantile(.99)))
}
