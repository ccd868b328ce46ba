package web_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheCalendarMarksTheDayOfAClockChange(t *testing.T) {
	w := newWorld(t) // it is 23 November 2026
	for name, cron := range map[string]string{"night": "30 2 * * *", "noon": "0 12 * * *"} {
		w.put(fmt.Sprintf("namespace: clock\nname: %s\nschedule: {cron: %q, timezone: Europe/Berlin}\nrun: {shell: 'true'}\n", name, cron))
	}
	w.put("namespace: clock\nname: utc\nschedule: {cron: '30 2 * * *', timezone: UTC}\nrun: {shell: 'true'}\n")
	b := w.login("ann")
	b.shows("/jobs/clock/night/schedule?month=2027-03", `<i class="on dst" title="Sun 28 Mar 02:00 the clock of Europe/Berlin goes to 03:00.">28 ±<b>`, `<span class="sr">Sun 28 Mar 02:00 the clock of Europe/Berlin goes to 03:00.</span>`)
	if got := b.said("/jobs/clock/night/schedule?month=2027-03", "clock"); !strings.HasPrefix(got, "± Sun 28 Mar 02:00 ") {
		t.Errorf("the note is %q", got)
	}
	contains(t, "the spring", b.said("/jobs/clock/night/schedule?month=2027-03", "clock"), "goes to 03:00. This schedule: on 28 March 2027 02:30 does not exist in Berlin: runs at 03:00.")
	contains(t, "the autumn", b.said("/jobs/clock/night/schedule?month=2027-10", "clock"), "Sun 31 Oct 03:00 the clock of Europe/Berlin goes to 02:00. This schedule: on 31 October 2027 02:30 comes twice in Berlin: runs on the first pass only")
	b.shows("/jobs/clock/night/schedule?month=2027-10", ">31 ±<b>")
	contains(t, "a schedule that it does not touch", b.said("/jobs/clock/noon/schedule?month=2027-03", "clock"), "This schedule: not affected.")
	for _, path := range []string{"/jobs/clock/night/schedule", "/jobs/clock/night/schedule?month=2027-04", "/jobs/clock/utc/schedule?month=2027-03"} {
		if body := b.ask("GET", path, nil).Body.String(); strings.Contains(body, "dst") || strings.Contains(body, `id="clock"`) {
			t.Errorf("%s marks a change of the clock", path)
		}
	}
	if body := b.ask("GET", "/jobs/clock/night/schedule?month=2027-03", nil, "Accept-Language", "zh").Body.String(); !strings.Contains(body, "Europe/Berlin 的时钟调到 03:00。 本调度计划：") {
		t.Error("the note is not in Chinese")
	}
}
