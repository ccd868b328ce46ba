package cron

import (
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// zoneTable is the IANA time zone database as internal/zonegen writes it: a
// line with its version and the number of zones, a line for each zone with its
// name and where its data stand, then the data in the TZif format (RFC 9636).
//
//go:generate go run ./internal/zonegen -o zones.dat
//go:embed zones.dat
var zoneTable string

// Zone is a time zone: the past, present and future offsets from UTC of a place. Zones come
// from a table inside this package and never from the machine, so that every node of a
// cluster has the same offsets. A Zone is immutable and safe for concurrent use. A nil
// *Zone is UTC.
type Zone struct {
	location *time.Location
	// segments have constant offsets and no gaps between them; the first
	// begins before all time, the last has no end.
	segments []segment
	// index maps a period of time to the segment at its beginning.
	index []uint16
}

// segment is a period with a constant offset. It lasts from start until the start of the
// next.
type segment struct {
	start  int64 // the instant, in seconds
	offset int64 // seconds east of UTC
}

const (
	// The index of a zone has one entry for each 2^indexShift seconds, about 97 days, between these
	// bounds: few enough that the index is small, and enough that most have at most two segments.
	indexShift = 23
	indexStart = -2208988800 >> indexShift // 1900
	indexEnd   = 7258118400 >> indexShift  // 2200

	beforeAllTime = math.MinInt64 / 2
	afterAllTime  = math.MaxInt64 / 2
)

var utc = newZone(time.UTC)

// zones caches the results of [LoadZone] by name. The table bounds it to about 600 names.
var zones sync.Map // string to *Zone

// LoadZone returns the zone of an IANA name such as "Europe/Berlin" from the
// table inside this package. Names are case-sensitive; "" and "Local", which
// [time.LoadLocation] knows, are refused.
func LoadZone(name string) (*Zone, error) {
	if z, ok := zones.Load(name); ok {
		return z.(*Zone), nil
	}
	data, ok := zoneData(name)
	if !ok {
		return nil, &UnknownZoneError{Name: name, Suggestion: nearestZone(name)}
	}
	location, err := time.LoadLocationFromTZData(name, []byte(data))
	if err != nil {
		return nil, fmt.Errorf("read zone %q: %w", name, err)
	}
	z, _ := zones.LoadOrStore(name, newZone(location))
	return z.(*Zone), nil
}

// UnknownZoneError means that a name is not in the zone table.
type UnknownZoneError struct {
	Name       string
	Suggestion string // the nearest name, "" if none is near
}

func (e *UnknownZoneError) Error() string { return e.Text().String() }

// Text is Error as a code with arguments.
func (e *UnknownZoneError) Text() phrase.Text {
	switch {
	case e.Name == "Local":
		return phrase.ZoneLocal.Of("Europe/Berlin")
	case e.Suggestion != "" && e.Suggestion == fixedNamed(e.Name):
		// The signs of these names are reversed, by POSIX.
		return phrase.ZoneMeant.Of(phrase.Quoted(e.Name), phrase.Quoted(e.Suggestion), fromUTC(e.Suggestion))
	case e.Suggestion != "":
		return phrase.ZoneNear.Of(phrase.Quoted(e.Name), phrase.Quoted(e.Suggestion))
	case e.Name == "CST": // of China more often than of Chicago
		return phrase.ZoneUnknown.Of(phrase.Quoted(e.Name), "Asia/Shanghai")
	default:
		return phrase.ZoneUnknown.Of(phrase.Quoted(e.Name), "Europe/Berlin")
	}
}

// ZoneTableVersion returns the release of the IANA database in this package, such as
// "2025c".
func ZoneTableVersion() string {
	version, _, _ := strings.Cut(zoneTable, " ")
	return version
}

// ZoneNames returns the names that [LoadZone] knows, sorted.
func ZoneNames() []string {
	header, _ := splitZoneTable()
	names := make([]string, 0, len(header))
	for _, line := range header {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	return names
}

// zoneData finds the data of a zone in the table.
func zoneData(name string) (string, bool) {
	header, data := splitZoneTable()
	i := sort.Search(len(header), func(i int) bool {
		entry, _, _ := strings.Cut(header[i], " ")
		return entry >= name
	})
	if i == len(header) {
		return "", false
	}
	entry, place, _ := strings.Cut(header[i], " ")
	if entry != name {
		return "", false
	}
	from, length, _ := strings.Cut(place, " ")
	start, _ := strconv.Atoi(from)
	n, _ := strconv.Atoi(length)
	return data[start : start+n], true
}

// splitZoneTable splits the table into the lines of its header, sorted by name, and the data after
// them.
var splitZoneTable = sync.OnceValues(func() (header []string, data string) {
	first, rest, _ := strings.Cut(zoneTable, "\n")
	_, count, _ := strings.Cut(first, " ")
	n, _ := strconv.Atoi(count)
	header = make([]string, n)
	for i := range header {
		header[i], rest, _ = strings.Cut(rest, "\n")
	}
	return header, rest
})

// fixedZone begins the names of zones with a constant offset.
const fixedZone = "Etc/GMT"

// fixedNamed returns the zone of an offset of whole hours, such as GMT+8 or UTC-03:00, and
// "" for another text.
func fixedNamed(text string) string {
	offset := strings.TrimPrefix(strings.ToUpper(text), "ETC/")
	offset = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(offset, "GMT"), "UTC"), ":00")
	if offset == "" || offset[0] != '+' && offset[0] != '-' {
		return ""
	}
	hours, err := strconv.ParseUint(offset[1:], 10, 8)
	name := fmt.Sprintf("%s%+d", fixedZone, hours)
	if offset[0] == '+' {
		name = fmt.Sprintf("%s-%d", fixedZone, hours)
	}
	if _, known := zoneData(name); err != nil || !known {
		return ""
	}
	return name
}

// fromUTC formats the offset of a zone that fixedNamed returns.
func fromUTC(name string) string {
	if hours, ahead := strings.CutPrefix(name, fixedZone+"-"); ahead {
		return hours + "h ahead of UTC"
	}
	return strings.TrimPrefix(name, fixedZone+"+") + "h behind UTC"
}

// otherPlaces are places that people name and that have no zone of their own, with their zones.
var otherPlaces = map[string]string{
	"beijing": "Asia/Shanghai", "peking": "Asia/Shanghai", "shenzhen": "Asia/Shanghai", "guangzhou": "Asia/Shanghai",
	"mumbai": "Asia/Kolkata", "delhi": "Asia/Kolkata", "bangalore": "Asia/Kolkata", "osaka": "Asia/Tokyo",
	"san_francisco": "America/Los_Angeles", "seattle": "America/Los_Angeles", "boston": "America/New_York", "washington": "America/New_York",
	"munich": "Europe/Berlin", "frankfurt": "Europe/Berlin", "hamburg": "Europe/Berlin", "geneva": "Europe/Zurich", "barcelona": "Europe/Madrid", "milan": "Europe/Rome",
}

// isAbbreviation reports whether a name has the form of CST, which stands for several zones.
// Similar names are no help for it.
func isAbbreviation(name string) bool {
	return len(name) <= 4 && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// nearestZone returns the known name that is nearest to a mistyped one.
func nearestZone(name string) string {
	if fixed := fixedNamed(name); fixed != "" {
		return fixed
	}
	_, place, found := strings.Cut(name, "/")
	if !found {
		place = name
	}
	if zone := otherPlaces[strings.ToLower(place)]; zone != "" {
		return zone
	}
	var last []string
	for _, known := range ZoneNames() {
		if strings.EqualFold(known, name) {
			return known
		}
		// "Berlin" for "Europe/Berlin".
		if _, city, ok := strings.Cut(known, "/"); ok && strings.EqualFold(city, name) {
			last = append(last, known)
		}
	}
	if len(last) > 0 {
		return last[0]
	}
	if isAbbreviation(name) {
		return ""
	}
	if near := nearest(name, ZoneNames()); near != "" {
		return near
	}
	return otherPlaces[nearest(place, slices.Sorted(maps.Keys(otherPlaces)))]
}

// NewZone converts a location that is not in the table, such as a result of [time.FixedZone], to a
// zone. Use [LoadZone] for IANA names: a location from [time.LoadLocation] or [time.Local] depends on the
// machine's own files.
func NewZone(location *time.Location) *Zone {
	return newZone(location)
}

func newZone(location *time.Location) *Zone {
	z := &Zone{location: location}
	z.segments = segmentsOf(location)
	z.index = make([]uint16, indexEnd-indexStart+1)
	i := 0
	for b := range z.index {
		at := int64(indexStart+b) << indexShift
		for i+1 < len(z.segments) && z.segments[i+1].start <= at {
			i++
		}
		z.index[b] = uint16(i)
	}
	return z
}

// segmentsOf reads the changes of the offset from a location.
//
// [time.Time.ZoneBounds] ends a segment too early on the last day of leap years beyond the table of a
// zone (golang/go#81583). Joining neighbours with equal offsets mends such a false end; a bound
// that does not lie after the given instant is skipped.
func segmentsOf(location *time.Location) []segment {
	at := time.Unix(daysOf(Date{firstYear - 50, 1, 1})*secondsPerDay, 0).In(location)
	horizon := daysOf(Date{lastYear + 1, 1, 2}) * secondsPerDay
	_, offset := at.Zone()
	segments := []segment{{start: beforeAllTime, offset: int64(offset)}}
	for {
		_, end := at.ZoneBounds()
		if end.IsZero() || at.Unix() > horizon {
			return segments
		}
		if end.After(at) {
			at = end
		} else {
			at = at.Add(secondsPerDay * time.Second)
		}
		_, offset := at.Zone()
		if last := segments[len(segments)-1]; int64(offset) != last.offset {
			segments = append(segments, segment{start: at.Unix(), offset: int64(offset)})
		}
	}
}

// Name returns the name of the zone, as [LoadZone] takes it.
func (z *Zone) Name() string { return z.Location().String() }

// String returns the name of the zone.
func (z *Zone) String() string { return z.Name() }

// Location returns the zone as the time package uses it.
func (z *Zone) Location() *time.Location { return z.orUTC().location }

func (z *Zone) orUTC() *Zone {
	if z == nil {
		return utc
	}
	return z
}

// segmentAt returns the index of the segment that instant u is in.
func (z *Zone) segmentAt(u int64) int {
	if len(z.segments) == 1 {
		return 0
	}
	b := u>>indexShift - indexStart
	b = max(0, min(b, int64(len(z.index)-1)))
	i := int(z.index[b])
	for i > 0 && u < z.segments[i].start {
		i--
	}
	for i+1 < len(z.segments) && u >= z.segments[i+1].start {
		i++
	}
	return i
}

// end returns the instant at which segment i ends.
func (z *Zone) end(i int) int64 {
	if i+1 < len(z.segments) {
		return z.segments[i+1].start
	}
	return afterAllTime
}

// civil returns the local time at t, as a civil second.
func (z *Zone) civil(t time.Time) int64 {
	u := t.Unix()
	return u + z.segments[z.segmentAt(u)].offset
}

// at is instantOf as a time, and startOf the first instant of a day.
func (z *Zone) at(c int64) time.Time        { return time.Unix(z.instantOf(c), 0) }
func (z *Zone) startOf(day int64) time.Time { return z.at(day * secondsPerDay) }

// instantOf returns the instant of a civil second: its first pass if it is repeated, the
// end of the gap if it is skipped.
func (z *Zone) instantOf(c int64) int64 {
	// No offset is a day or more, so the segment is near.
	for i := z.segmentAt(c - secondsPerDay); ; i++ {
		s := z.segments[i]
		if c-s.offset < s.start {
			return s.start
		}
		if c-s.offset < z.end(i) {
			return c - s.offset
		}
	}
}
