package cron

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// fuzzSeeds are expressions of all kinds, in addition to the vectors and refused expressions.
var fuzzSeeds = []string{
	"* * * * *", "*/5 0-23/2 1,15 jan-dec mon-fri", "0 0 0 1 1 ? 2030-2040/2", "58-1 22-2 28-3 nov-feb fri-mon",
	"0 0 L-3W,15W,LW,L,L-2 * 5#2,1L,0#L", "H H(0-7)/3 ~ 2~5 +H", "TZ=Europe/Berlin 30 2 * * *", "CRON_TZ=UTC @daily",
	"@every 5m", "@reboot", "* * *", "61 * * * *", "* * * * MON-FIR", "0 0 0 ? * L", "\x00", "ä", "99999999999999999999/0", "TZ=", "@\x10", "@daily\x7f x", "* * * * * 2027\n", "0/\x16 0 0 0 0",
}

func addSeeds(f *testing.F) {
	v := readVectors(f)
	add := func(expr string, dialect Dialect) {
		f.Add(expr, uint8(dialect), uint8(Vixie), int64(1732101753))
	}
	for _, seed := range fuzzSeeds {
		for d := Default; d <= Quartz; d++ {
			add(seed, d)
		}
	}
	for _, vector := range v.Vectors {
		add(vector.Expr, dialectOf(f, vector.Dialect))
	}
	for _, refused := range v.Errors {
		add(refused.Expr, dialectOf(f, refused.Dialect))
	}
}

// FuzzParse checks that Parse ends for any text, with a readable error or an expression whose
// canonical form is equal.
func FuzzParse(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, expr string, dialect, rule uint8, at int64) {
		options := []Option{WithDialect(Dialect(dialect % 3)), WithClockChange(ClockChange(rule % 5)), WithJob("fuzz", "job")}
		e, err := Parse(expr, options...)
		if err != nil {
			checkError(t, expr, err)
			return
		}
		options = append(options, In(e.Zone()))
		canonical := e.String()
		again, err := Parse(canonical, options...)
		if err != nil {
			t.Fatalf("%q (%s): the canonical form %q is refused: %v", expr, e.Dialect(), canonical, err)
		}
		if !e.Equal(again) {
			t.Fatalf("%q (%s): the canonical form %q is another expression", expr, e.Dialect(), canonical)
		}
		if twice := again.String(); twice != canonical {
			t.Fatalf("%q (%s): the canonical form %q has the canonical form %q", expr, e.Dialect(), canonical, twice)
		}
		for lang := English; lang <= Chinese; lang++ {
			if text := e.Describe(lang); text == "" || strings.ContainsAny(text, "\n\r") || !utf8.ValidString(text) {
				t.Fatalf("%q (%s): described as %q", expr, e.Dialect(), text)
			}
		}
		after := time.Unix(at%(1<<34), 0)
		if reason, never := e.NeverReason(after), e.Next(after).IsZero(); never != (reason != "") {
			t.Fatalf("%q (%s) after %s: never due is %t, the reason is %q", expr, e.Dialect(), stamp(after), never, reason)
		}
	})
}

// checkError checks that an error names a place in the text, in one line.
func checkError(t *testing.T, expr string, err error) {
	t.Helper()
	var parseError *ParseError
	if !errors.As(err, &parseError) {
		t.Fatalf("%q: the error is a %T", expr, err)
	}
	shown := parseError.Expr
	if len(expr) <= maxLength && shown != expr {
		t.Fatalf("%q: the error is about %q", expr, shown)
	}
	if p := *parseError; p.Pos < 0 || p.Len < 0 || p.Pos+p.Len > len(shown) || p.Problem == "" {
		t.Fatalf("%q: %#v points outside the text, or says nothing", expr, p)
	}
	message := err.Error()
	for _, r := range message {
		if r < ' ' || r == utf8.RuneError && utf8.ValidString(expr) && !strings.ContainsRune(expr, r) {
			t.Fatalf("%q: the message %q is no plain line", expr, message)
		}
	}
	if limit := 4*len(shown) + 1500; len(message) > limit {
		t.Fatalf("%q: the message has %d bytes", expr, len(message))
	}
}

// FuzzNext: from any instant in any zone, the search ends soon and the answers
// agree with each other.
func FuzzNext(f *testing.F) {
	v := readVectors(f)
	for i, vector := range v.Vectors {
		f.Add(vector.Expr, uint8(dialectOf(f, vector.Dialect)), uint8(i), uint16(i*7), vector.From.Unix(), uint32(vector.From.Nanosecond()))
	}
	for _, seed := range fuzzSeeds {
		f.Add(seed, uint8(Default), uint8(0), uint16(0), int64(1732101753), uint32(0))
		f.Add(seed, uint8(Quartz), uint8(1), uint16(100), int64(-1<<62), uint32(1))
		f.Add(seed, uint8(Vixie5), uint8(2), uint16(200), int64(1<<62), uint32(999999999))
		f.Add(seed, uint8(Default), uint8(3), uint16(300), int64(math.MinInt64/2), uint32(0))
		f.Add(seed, uint8(Default), uint8(4), uint16(110), int64(math.MaxInt64/2), uint32(999999999))
	}
	names := ZoneNames()
	f.Fuzz(func(t *testing.T, expr string, dialect, rule uint8, zone uint16, seconds int64, nanoseconds uint32) {
		place, err := LoadZone(names[int(zone)%len(names)])
		if err != nil {
			t.Fatal(err)
		}
		e, err := Parse(expr, In(place), WithDialect(Dialect(dialect%3)), WithClockChange(ClockChange(rule%5)), WithJob("fuzz", "job"))
		if err != nil {
			return
		}
		at := time.Unix(seconds, int64(nanoseconds%1e9))
		if seconds > math.MaxInt64/2 || seconds < math.MinInt64/2 {
			return // beyond the range of the time package
		}
		// Both searches must end, and within the millisecond that a loop over minutes or days would
		// take. The best of several counts, as the machine may be busy.
		fastest := time.Hour
		for try := 0; try < 5 || fastest > 5*time.Millisecond && try < 100; try++ {
			began := time.Now()
			e.Next(at)
			e.Prev(at)
			fastest = min(fastest, time.Since(began))
		}
		if fastest > 5*time.Millisecond {
			t.Errorf("Next and Prev of %q at %v take %v", expr, at, fastest)
		}
		if next := e.Next(at); !next.IsZero() {
			if !next.After(at) || next.Year() > lastYear || next.Nanosecond() != 0 {
				t.Fatalf("%q in %s (%s): Next(%v) = %v", expr, place, e.ClockChange(), at, next)
			}
			if again := e.Prev(next.Add(1)); !again.Equal(next) {
				t.Fatalf("%q in %s (%s): Next(%v) = %v, Prev just after it = %v", expr, place, e.ClockChange(), at, next, again)
			}
			if between := e.Prev(next); !between.IsZero() && between.After(at) {
				t.Fatalf("%q in %s (%s): Next(%v) = %v passed over %v", expr, place, e.ClockChange(), at, next, between)
			}
		}
		if previous := e.Prev(at); !previous.IsZero() {
			if !previous.Before(at) || previous.Year() < firstYear || previous.Nanosecond() != 0 {
				t.Fatalf("%q in %s (%s): Prev(%v) = %v", expr, place, e.ClockChange(), at, previous)
			}
			if again := e.Next(previous.Add(-1)); !again.Equal(previous) {
				t.Fatalf("%q in %s (%s): Prev(%v) = %v, Next just before it = %v", expr, place, e.ClockChange(), at, previous, again)
			}
		}
	})
}
