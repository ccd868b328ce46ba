package robfig

import (
	"os"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/cron"
)

const (
	// The offsets of two zones are compared from yearsBefore to yearsAfter: a change of the rules
	// that lies outside it changes no run for years.
	yearsBefore = 1
	yearsAfter  = 10
	// compareEvery is shorter than the shortest time for which a zone has another offset: Ramadan.
	compareEvery = 7 * 24 * time.Hour
)

// zoneName returns an IANA name under which a store can keep a location: of a zone with the same
// offsets. It returns "" if there is none. It goes by offsets and not by names: the file of
// /etc/localtime, a path in TZ and a FixedZone have none, or one that means something else, such
// as CST.
func zoneName(location *time.Location, now time.Time) string {
	for _, name := range append(namesOf(location), cron.ZoneNames()...) {
		if zone, err := cron.LoadZone(name); err == nil && sameOffsets(location, zone.Location(), now) {
			return name
		}
	}
	return ""
}

// namesOf returns the names that a location may have, the likeliest first.
func namesOf(location *time.Location) (names []string) {
	add := func(name string) {
		name = strings.TrimPrefix(name, ":")
		if _, rest, isPath := strings.Cut(name, "zoneinfo/"); isPath {
			name = rest
		}
		names = append(names, name)
	}
	if location == time.Local {
		add(os.Getenv("TZ"))
		if target, err := os.Readlink("/etc/localtime"); err == nil {
			add(target)
		}
		if text, err := os.ReadFile("/etc/timezone"); err == nil {
			add(strings.TrimSpace(string(text)))
		}
	}
	add(location.String())
	return append(names, "UTC")
}

// sameOffsets compares each change of the clock to the second, in either location.
func sameOffsets(x, y *time.Location, now time.Time) bool {
	end := now.AddDate(yearsAfter, 0, 0)
	for at := now.AddDate(-yearsBefore, 0, 0); at.Before(end); at = at.Add(compareEvery) {
		if offset(at, x) != offset(at, y) {
			return false
		}
	}
	for _, l := range []*time.Location{x, y} {
		for at := now.AddDate(-yearsBefore, 0, 0); at.Before(end); {
			_, change := at.In(l).ZoneBounds()
			if !change.After(at) { // there is none, which is the zero time
				break
			}
			if at = change; offset(at, x) != offset(at, y) || offset(at.Add(-1), x) != offset(at.Add(-1), y) {
				return false
			}
		}
	}
	return true
}

func offset(at time.Time, l *time.Location) int {
	_, seconds := at.In(l).Zone()
	return seconds
}
