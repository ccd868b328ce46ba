package engine

import (
	"testing"

	"github.com/belfry-cron/belfry/job"
)

func TestDefaultsThatBeginAnEpoch(t *testing.T) {
	text := func(zone string, clockChange job.ClockChange) string {
		j := filled(t, "name: a\nschedule: {cron: '0 3 * * *'}")
		j.Schedule.Timezone, j.Schedule.ClockChange = zone, clockChange
		text, err := TimingText(j, nil)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, c := range []struct{ was, is, want string }{
		{text("", ""), text("Europe/Berlin", ""), "the default time zone of the server was changed from UTC to Europe/Berlin"},
		{text("Europe/Berlin", ""), text("Asia/Tokyo", ""), "the default time zone of the server was changed from Europe/Berlin to Asia/Tokyo"},
		{text("UTC", ""), text("UTC", "literal"), "the defaults of the server were changed"},
	} {
		if got := WhyDefaults(c.was, c.is); got.String() != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
