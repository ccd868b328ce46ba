package cron

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// distinctZones returns one name for each distinct content of the zone table: many names are links.
func distinctZones(t testing.TB) []string {
	t.Helper()
	seen := map[string]bool{}
	var names []string
	for _, name := range ZoneNames() {
		data, ok := zoneData(name)
		if !ok {
			t.Fatalf("%s is in the list of the table, but has no data", name)
		}
		if !seen[data] {
			seen[data] = true
			names = append(names, name)
		}
	}
	return names
}

func TestEveryZoneLoads(t *testing.T) {
	names := ZoneNames()
	if len(names) < 590 {
		t.Errorf("the table has %d names, want all of the IANA database", len(names))
	}
	for _, name := range names {
		zone, err := LoadZone(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if zone.Name() != name || zone.String() != name || zone.Location().String() != name {
			t.Errorf("the zone %s calls itself %s", name, zone)
		}
		if again, _ := LoadZone(name); again != zone {
			t.Errorf("%s: loaded twice, two zones", name)
		}
	}
}

func TestUnknownZonesAreRefused(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"", "an IANA name"},
		{"Local", "name the zone itself"},
		{"0", "an IANA name"},
		{"Europe/Belrin", `did you mean "Europe/Berlin"?`},
		{"europe/berlin", `did you mean "Europe/Berlin"?`},
		{"Berlin", `did you mean "Europe/Berlin"?`},
		{"Asia/Beijing", `did you mean "Asia/Shanghai"?`},
		{"beijing", `did you mean "Asia/Shanghai"?`},
		{"GMT+8", `did you mean "Etc/GMT-8", which is 8h ahead of UTC?`},
		{"utc+08:00", `did you mean "Etc/GMT-8", which is 8h ahead of UTC?`},
		{"-03:00", `did you mean "Etc/GMT+3", which is 3h behind UTC?`},
		{"GMT+15", "unknown time zone"},
		{"GMT+", "unknown time zone"},
		{"Etc/GMT+1x", `did you mean "Etc/GMT+`},
		{"CST", "an IANA name"}, // China or Chicago: CET is neither
		{"../../etc/localtime", "an IANA name"},
		{"/usr/share/zoneinfo/UTC", "an IANA name"},
		{"Europe/Berlin ", "unknown time zone"},
		{"Europe", "unknown time zone"},
		{"zzz", "an IANA name"},
	} {
		zone, err := LoadZone(test.name)
		if err == nil {
			t.Errorf("LoadZone(%q) = %s, want an error", test.name, zone)
		} else if !strings.Contains(err.Error(), test.want) {
			t.Errorf("LoadZone(%q): %v, want it to say %q", test.name, err, test.want)
		}
	}
}

func TestNilZoneIsUTC(t *testing.T) {
	var zone *Zone
	if zone.Name() != "UTC" || zone.String() != "UTC" || zone.Location() != time.UTC {
		t.Errorf("the nil zone is %s", zone)
	}
	if zone, _ := LoadZone("UTC"); zone.Name() != "UTC" {
		t.Errorf("UTC is called %s", zone)
	}
}

// The offsets of searches equal the time package's at single instants, which golang/go#81583 does
// not affect: Go's ZoneBounds ends before its instant on 31 December of leap years beyond the table
// of a zone.
func TestSegmentsAgreeWithTheTimePackage(t *testing.T) {
	const hour = 3600
	first, last := time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, name := range watched(distinctZones(t)) {
		zone := loadZone(t, name)
		check := func(u int64) {
			if _, want := time.Unix(u, 0).In(zone.Location()).Zone(); zone.segments[zone.segmentAt(u)].offset != int64(want) {
				t.Fatalf("%s at %s: offset %d, the time package has %d",
					name, stamp(time.Unix(u, 0).UTC()), zone.segments[zone.segmentAt(u)].offset, want)
			}
		}
		for u := first.Unix(); u < last.Unix(); u += int64(light(24, 24*5)) * hour {
			check(u)
		}
		for j := 1; j < len(zone.segments); j++ {
			for _, away := range []int64{-hour, -1, 0, 1, hour} {
				check(zone.segments[j].start + away)
			}
			if zone.segments[j].offset == zone.segments[j-1].offset {
				t.Errorf("%s: a segment begins at %s without a change", name, stamp(time.Unix(zone.segments[j].start, 0).UTC()))
			}
		}
		// Hour by hour around the end of each fourth year, shifted per zone: every fourth zone has
		// the leap years.
		for year := 1903 + i%4; year < 2199; year += 4 {
			end := time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC).Unix()
			for u := end - 24*hour; u <= end+48*hour; u += hour {
				check(u)
			}
		}
	}
}

// The same hour by hour around the end of every leap year, for zones with rules
// that continue forever on either side of Greenwich and the equator.
func TestYearEndsOfLeapYears(t *testing.T) {
	for _, name := range []string{"America/New_York", "Europe/Berlin", "Australia/Sydney", "Pacific/Auckland", "America/Santiago", "Europe/Dublin", "Africa/Casablanca", "Asia/Gaza"} {
		zone := loadZone(t, name)
		hourly, err := Parse("0 * * * *", In(zone))
		if err != nil {
			t.Fatal(err)
		}
		for year := 2028; year < 2199; year += 4 {
			at := time.Date(year, 12, 30, 0, 0, 0, 0, time.UTC)
			for range 72 {
				next := hourly.Next(at)
				if want := at.Add(time.Hour); !next.Equal(want) {
					t.Fatalf("%s: hourly, Next(%s) = %s, want %s", name, stamp(at), stamp(next), stamp(want.In(zone.Location())))
				}
				at = next
			}
		}
	}
}

// Every name of the table over one year, on walls with a step of a quarter of an
// hour: at, before and after each change, and on all days between.
func TestEveryZoneForAYear(t *testing.T) {
	const quarter = 900
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	to := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	every := func(minutes ...int) (set [60]bool) {
		for _, m := range minutes {
			set[m] = true
		}
		return set
	}
	var all [60]bool
	for i := range all {
		all[i] = true
	}
	always := func(moment) bool { return true }
	plain := func(text string, minute, hour [60]bool, wildcard bool) meaning {
		return meaning{text: text, second: every(0), minute: minute, hour: hour, month: all, day: always, weekday: always, and: true, wildcard: wildcard}
	}
	type year struct {
		*wall
		known map[string][]int64
	}
	walls := map[string]year{} // by the clocks of the year
	for _, name := range watched(ZoneNames()) {
		zone := loadZone(t, name)
		changes := changesOf(zone.Location(), from, to)
		_, offset := time.Unix(from, 0).In(zone.Location()).Zone()
		if offset%quarter != 0 {
			t.Fatalf("%s: the offset of %d s is no quarter of an hour", name, offset)
		}
		key := binary.BigEndian.AppendUint64(nil, uint64(offset))
		expressions := []meaning{
			plain("0 0 * * *", every(0), every(0), false),
			plain("30 2 * * *", every(30), every(2), false),
			plain("*/30 0-5 * * *", every(0, 30), every(0, 1, 2, 3, 4, 5), true),
			plain("15 */2 * * *", every(15), every(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22), true),
		}
		for _, c := range changes {
			if c.at%quarter != 0 || c.by%quarter != 0 {
				t.Fatalf("%s: the change at %s is no quarter of an hour", name, stamp(time.Unix(c.at, 0)))
			}
			key = binary.BigEndian.AppendUint64(key, uint64(c.at))
			key = binary.BigEndian.AppendUint64(key, uint64(c.by))
		}
		w, alike := walls[string(key)]
		if !alike {
			w = year{newWall(zone, from, to, quarter), map[string][]int64{}}
			walls[string(key)] = w
		}
		for _, c := range w.changes {
			// The time of the change, and the skipped or repeated times around it.
			for _, away := range []int64{-c.by - quarter, -c.by, -quarter, 0, c.by / 2, c.by - quarter, c.by, quarter} {
				m := w.at(c.at - quarter).plus(quarter).plus((away + 24*3600) % (24 * 3600))
				expressions = append(expressions, plain(m.text(), every(int(m.minute)), every(int(m.hour)), false))
			}
		}
		for _, n := range expressions {
			for n.clockChange = Vixie; n.clockChange <= SkipLast; n.clockChange++ {
				// Zones that are alike in this year share the wall and the oracle's answers, and
				// only the first tries all rules.
				if n.clockChange > Vixie && (alike || short()) {
					break
				}
				known := fmt.Sprint(n.text, n.clockChange)
				if _, ok := w.known[known]; !ok {
					w.known[known] = w.occurrences(&n)
				}
				own := wall{zone: zone, from: w.from, step: w.step, moments: w.moments}
				own.compareWith(t, &n, w.known[known])
			}
		}
	}
	t.Logf("%d names, %d different years", len(ZoneNames()), len(walls))
}

// text writes the time as an expression for each day.
func (m moment) text() string {
	var b strings.Builder
	for i, v := range []int16{m.minute, m.hour} {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteByte('0' + byte(v/10))
		b.WriteByte('0' + byte(v%10))
	}
	return b.String() + " * * *"
}

// The changes that each zone had since 1900 and that are not by one hour, second
// by second: the largest, and the first with an odd number of minutes.
func TestMostUnusualChangesOfEveryZone(t *testing.T) {
	t.Logf("random with -seed %d", *seedFlag)
	from := time.Date(1900, 2, 1, 0, 0, 0, 0, time.UTC).Unix()
	to := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	seen := map[change]bool{}
	windows := 0
	for i, name := range watched(distinctZones(t)) {
		zone := loadZone(t, name)
		var largest, odd change
		for _, c := range changesOf(zone.Location(), from, to) {
			if max(c.by, -c.by) > max(largest.by, -largest.by) {
				largest = c
			}
			if odd.by == 0 && c.by%60 != 0 {
				odd = c
			}
		}
		r := localRand(2000 + i)
		for _, c := range []change{largest, odd} {
			if c.by == 0 || c.by == 3600 || seen[c] {
				continue
			}
			seen[c] = true
			if windows++; windows%light(1, 10) != 0 {
				continue
			}
			w := wallAround(zone, c, 1)
			for range 4 {
				w.compare(t, (&generator{r: r, dialect: randomDialect(r)}).on(w))
			}
			// The times that are skipped or repeated, each rule.
			m := w.at(c.at - 1).plus(1)
			n := meaning{text: m.text(), second: [60]bool{true}, day: isAnyDay, weekday: isAnyDay, and: true}
			n.minute[m.minute], n.hour[m.hour] = true, true
			for month := range 12 {
				n.month[month+1] = true
			}
			for n.clockChange = Vixie; n.clockChange <= SkipLast; n.clockChange++ {
				w.compare(t, &n)
			}
		}
	}
	t.Logf("%d changes", windows)
}

func isAnyDay(moment) bool { return true }

// A zone file of the machine, or one that ZONEINFO points to, changes nothing: neither for a
// process that starts with it nor for one that is running. The time package reads the variable
// once, so that the test needs another process.
func TestZoneFilesOfTheMachineAreIgnored(t *testing.T) {
	const child = "BELFRY_TEST_FALSIFIED_ZONES"
	if dir := os.Getenv(child); dir != "" {
		withFalsifiedZones(t, filepath.Join(dir, "Europe", "Berlin"))
		return
	}
	// Tokyo's data under the name of Berlin.
	data, ok := zoneData("Asia/Tokyo")
	if !ok {
		t.Fatal("Asia/Tokyo is not in the table")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "Europe", "Berlin")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0], "-test.run", "^TestZoneFilesOfTheMachineAreIgnored$")
	command.Env = append(os.Environ(), "ZONEINFO="+dir, child+"="+dir)
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("with a falsified file: %v\n%s", err, output)
	}
}

// withFalsifiedZones runs in a process that was started with a falsified file for
// Berlin.
func withFalsifiedZones(t *testing.T, file string) {
	believed, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if _, offset := time.Unix(0, 0).In(believed).Zone(); offset != 9*3600 {
		t.Fatal("the time package does not believe the file: the test shows nothing")
	}
	check := func(when string) {
		t.Helper()
		zones.Delete("Europe/Berlin") // so that it is loaded again
		e, err := Parse("TZ=Europe/Berlin 30 2 * * *")
		if err != nil {
			t.Fatal(err)
		}
		got := e.Next(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC))
		if want := "2026-03-29T03:00:00+02:00"; stamp(got) != want {
			t.Errorf("%s: Next is %s, want %s", when, stamp(got), want)
		}
	}
	check("with the file there")
	if err := os.WriteFile(file, []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	check("with the file swapped while running")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	check("with the file removed while running")
}

func TestZoneOfFixedOffset(t *testing.T) {
	zone := NewZone(time.FixedZone("mine", 5*3600+1800))
	e, err := Parse("0 0 * * *", In(zone))
	if err != nil {
		t.Fatal(err)
	}
	got := e.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if want := "2026-01-02T00:00:00+05:30"; stamp(got) != want {
		t.Errorf("Next is %s, want %s", stamp(got), want)
	}
}
