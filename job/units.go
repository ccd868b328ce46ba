package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// Duration is a length of time that is written as whole numbers with units, the largest first:
// "90s", "10m", "1d12h", "250ms". A day always has 24 hours and a week 7 days. "0" needs no unit.
type Duration time.Duration

// Forever is the [Duration] without an end, written "forever". Only some fields accept it, as
// documented.
const Forever Duration = math.MaxInt64

// durationUnits are the units of a [Duration], the largest first.
var durationUnits = []struct {
	name   string
	length time.Duration
}{
	{"w", 7 * 24 * time.Hour},
	{"d", 24 * time.Hour},
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
	{"us", time.Microsecond},
	{"ns", time.Nanosecond},
}

// ParseDuration reads the text form of a [Duration].
func ParseDuration(text string) (Duration, error) {
	switch text {
	case "":
		return 0, phrase.Mistake(phrase.DurationMissing, phrase.Example.Of("90s, 10m or 1d12h"))
	case "0":
		return 0, nil
	case "forever":
		return Forever, nil
	}
	var total Duration
	rest, largest := text, 0
	for rest != "" {
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		rest = rest[len(digits):]
		letters := rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz"))]
		rest = rest[len(letters):]
		n, err := strconv.ParseInt(digits, 10, 64)
		switch {
		case digits == "":
			return 0, phrase.Mistake(phrase.NotDuration.Of(quote(text)), phrase.WholeUnits.Of("90s, 10m or 1d12h"))
		case err != nil:
			return 0, phrase.Mistake(phrase.TooLong.Of(quote(text)), phrase.AtMostYears)
		case letters == "" && strings.HasPrefix(rest, "."):
			return 0, phrase.Mistake(phrase.HasFraction.Of(quote(text)), phrase.WholeUnits.Of("1h30m"))
		case letters == "":
			return 0, phrase.Mistake(phrase.NoUnit.Of(quote(text)), unitMeant(text, phrase.UnitsForm))
		}
		unit := largest
		for unit < len(durationUnits) && durationUnits[unit].name != letters {
			unit++
		}
		if unit == len(durationUnits) {
			return 0, phrase.Mistake(phrase.WrongUnit.Of(quote(text), quote(letters)), unitMeant(text, phrase.UnitsOrder))
		}
		length := Duration(durationUnits[unit].length)
		if Duration(n) > (math.MaxInt64-1-total)/length {
			return 0, phrase.Mistake(phrase.TooLong.Of(quote(text)), phrase.AtMostYears)
		}
		total += Duration(n) * length
		largest = unit + 1
	}
	return total, nil
}

// unitMeant suggests the duration that a number and a word mean, such as 5m for "5 minutes", else another hint.
func unitMeant(text string, other phrase.Text) phrase.Text {
	word := strings.TrimLeft(text, "0123456789")
	number := strings.TrimSuffix(text, word)
	switch word = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(word)), "s"); word {
	case "second", "sec", "minute", "min", "hour", "day", "week":
		return phrase.DidYouMeanPath.Of(number + word[:1])
	case "hr":
		return phrase.DidYouMeanPath.Of(number + "h")
	}
	return other
}

// String returns the shortest text that [ParseDuration] reads as d. It writes no
// weeks: "14d" is easier to compare than "2w".
func (d Duration) String() string {
	switch {
	case d == 0:
		return "0s"
	case d == Forever:
		return "forever"
	case d < 0:
		return "-" + Duration(-max(d, -math.MaxInt64)).String()
	}
	b := make([]byte, 0, 32) // on the stack
	for _, unit := range durationUnits[1:] {
		if n := d / Duration(unit.length); n > 0 {
			b = append(strconv.AppendInt(b, int64(n), 10), unit.name...)
			d -= n * Duration(unit.length)
		}
	}
	return string(b)
}

// InWords formats d for sentences: "1 h 30 min", "12.5 s", "250 ms".
func (d Duration) InWords() string {
	switch {
	case d == 0:
		return "0 s"
	case d == Forever:
		return "forever"
	case d < 0:
		return "-" + Duration(-max(d, -math.MaxInt64)).InWords()
	}
	var b []byte
	for _, unit := range []struct {
		name   string
		length Duration
		last   bool // shorter parts become a fraction of it
	}{
		{" d ", Duration(24 * time.Hour), false},
		{" h ", Duration(time.Hour), false},
		{" min ", Duration(time.Minute), false},
		{" s ", Duration(time.Second), true},
		{" ms ", Duration(time.Millisecond), true},
		{" µs ", Duration(time.Microsecond), true},
		{" ns ", 1, true},
	} {
		switch n := d / unit.length; {
		case n == 0:
			continue
		case unit.last:
			b = strconv.AppendFloat(b, float64(d)/float64(unit.length), 'f', -1, 64)
			d = 0
		default:
			b = strconv.AppendInt(b, int64(n), 10)
			d %= unit.length
		}
		b = append(b, unit.name...)
	}
	return strings.TrimSuffix(string(b), " ")
}

// MarshalText returns String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is [ParseDuration].
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}

// Size is a number of bytes, written plain or with a unit: "64MiB", "1GiB",
// "500MB", "1048576".
type Size int64

// sizeUnits are the units of a [Size], the largest first and, of two spellings,
// the preferred one.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"TB", 1e12},
	{"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6},
	{"KiB", 1 << 10}, {"kB", 1e3}, {"KB", 1e3},
	{"B", 1},
}

// ParseSize reads the text form of a [Size].
func ParseSize(text string) (Size, error) {
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	unit := text[len(digits):]
	if digits == "" {
		return 0, phrase.Mistake(phrase.NotSize.Of(quote(text)), phrase.Example.Of("64MiB, 500MB or 1048576"))
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, phrase.Mistake(phrase.TooLarge.Of(quote(text)))
	}
	if unit == "" {
		return Size(n), nil
	}
	for _, u := range sizeUnits {
		if u.name == unit {
			if n > math.MaxInt64/u.bytes {
				return 0, phrase.Mistake(phrase.TooLarge.Of(quote(text)))
			}
			return Size(n * u.bytes), nil
		}
	}
	names := make([]string, len(sizeUnits))
	for i, u := range sizeUnits {
		names[i] = u.name
	}
	return 0, phrase.Mistake(phrase.UnknownUnit.Of(quote(text), quote(unit)), phrase.SizeUnits.Of(nearest(unit, names)))
}

// String returns s in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && u.bytes > 1 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Rounded returns s as a person reads it, such as 118.2 MiB.
func (s Size) Rounded() string { return s.rounded(1<<10, "KiB", "MiB", "GiB", "TiB") }

// RoundedAs returns s as Rounded does, in the units of a limit: MB if that is a number of them.
func (s Size) RoundedAs(limit Size) string {
	if limit%(1<<20) != 0 && limit%1e6 == 0 {
		return s.rounded(1000, "kB", "MB", "GB", "TB")
	}
	return s.Rounded()
}

func (s Size) rounded(base float64, units ...string) string {
	if float64(s) < base {
		return fmt.Sprintf("%d B", s)
	}
	size, unit := float64(s)/base, 0
	for ; size >= base && unit < len(units)-1; unit++ {
		size /= base
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}

// MarshalText returns String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is [ParseSize].
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// Umask is a file mode creation mask, written in octal: "022", "0027", "0o77".
type Umask uint16

// String returns the mask as three octal digits.
func (m Umask) String() string { return fmt.Sprintf("%03o", uint16(m)) }

// MarshalText returns String.
func (m Umask) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads octal digits.
func (m *Umask) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(strings.TrimPrefix(string(text), "0o"), 8, 16)
	if err != nil || n > 0o777 {
		return phrase.Mistake(phrase.NotUmask.Of(quote(string(text))), phrase.UmaskForm)
	}
	*m = Umask(n)
	return nil
}

// parseInstant reads an RFC 3339 instant. Its location is the written offset, so that it
// does not depend on the machine's zone.
func parseInstant(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, phrase.Mistake(phrase.NotInstant.Of(quote(text)), instantHint(text))
	}
	if t.IsZero() {
		return time.Time{}, phrase.Mistake(phrase.TooEarly.Of(quote(text)))
	}
	if _, offset := t.Zone(); offset != 0 {
		return t.In(time.FixedZone("", offset)), nil
	}
	return t.UTC(), nil
}

// instantHint suggests a correction of a text that resembles an instant.
func instantHint(text string) phrase.Text {
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return phrase.WithOffset.Of(t.Format("2006-01-02T15:04:05Z"), t.Format("2006-01-02T15:04:05")+"+02:00")
		}
	}
	return phrase.RFC3339.Of("2026-10-01T09:00:00+02:00")
}

// formatInstant is the inverse of parseInstant.
func formatInstant(t time.Time) string { return t.Format(time.RFC3339Nano) }
