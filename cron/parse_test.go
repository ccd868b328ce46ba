package cron

import (
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"strings"
	"testing"
	"time"
)

// compiled writes what a field compiled to: "*" or a list of plain values, then the
// special days.
func compiled(e *Expression, field int) string {
	var set uint64
	full := 0
	var items []string
	switch field {
	case secondField:
		set, full = e.second, 60
	case minuteField:
		set, full = e.minute, 60
	case hourField:
		set, full = uint64(e.hour), 24
	case dayField:
		set, full = uint64(e.day), 31
	case monthField:
		set, full = uint64(e.month), 12
	case weekdayField:
		set, full = uint64(e.weekday), 7
	case yearField:
		if e.anyYear() {
			return "*"
		}
		for y := 1900; y < 2300; y++ {
			if e.hasYear(y) {
				items = append(items, fmt.Sprint(y))
			}
		}
		return strings.Join(items, ",")
	}
	if bits.OnesCount64(set) == full {
		items = append(items, "*")
	} else {
		for v := range 64 {
			if set>>v&1 != 0 {
				items = append(items, fmt.Sprint(v))
			}
		}
	}
	if field == dayField {
		for n := range 32 {
			for _, special := range []struct {
				set  uint32
				text string
			}{{e.nearest, "%dW"}, {e.fromLast, "L-%d"}, {e.nearestLast, "L-%dW"}} {
				if special.set>>n&1 != 0 {
					items = append(items, fmt.Sprintf(special.text, n))
				}
			}
		}
	}
	if field == weekdayField {
		for i := range 7 * nthBits {
			if e.nth>>i&1 != 0 {
				which := fmt.Sprint(i%nthBits + 1)
				if i%nthBits == nthLast {
					which = "L"
				}
				items = append(items, fmt.Sprintf("%d#%s", i/nthBits, which))
			}
		}
	}
	return strings.Join(items, ",")
}

func TestFieldsCompileTo(t *testing.T) {
	for _, test := range []struct {
		dialect Dialect
		expr    string
		field   int
		want    string
	}{
		// Stars, values, ranges, steps and lists, in all dialects.
		{Default, "* * * * *", secondField, "0"},
		{Default, "* * * * *", minuteField, "*"},
		{Default, "* * * * *", yearField, "*"},
		{Default, "5 * * * *", minuteField, "5"},
		{Default, "05 * * * *", minuteField, "5"},
		{Default, "1-3 * * * *", minuteField, "1,2,3"},
		{Default, "0-0 * * * *", minuteField, "0"},
		{Default, "*/20 * * * *", minuteField, "0,20,40"},
		{Default, "*/7 * * * *", minuteField, "0,7,14,21,28,35,42,49,56"},
		{Default, "*/59 * * * *", minuteField, "0,59"},
		{Default, "*/60 * * * *", minuteField, "0"},
		{Default, "*/1000000000000 * * * *", minuteField, "0"},
		{Default, "10-30/10 * * * *", minuteField, "10,20,30"},
		{Default, "10-29/10 * * * *", minuteField, "10,20"},
		{Default, "10-12/100 * * * *", minuteField, "10"},
		{Default, "1,5,9 * * * *", minuteField, "1,5,9"},
		{Default, "9,1,5,1 * * * *", minuteField, "1,5,9"},
		{Default, "1-3,20-40/10,59 * * * *", minuteField, "1,2,3,20,30,40,59"},
		{Default, "0 0 */10 * *", dayField, "1,11,21,31"},
		{Default, "0 0 * */5 *", monthField, "1,6,11"},
		{Default, "0 0 * * */2", weekdayField, "0,2,4,6"},
		{Default, "0 0 1-31 * *", dayField, "*"},

		// Names in any case.
		{Default, "0 0 * jan,FEB,Mar *", monthField, "1,2,3"},
		{Default, "0 0 * jun-aug *", monthField, "6,7,8"},
		{Default, "0 0 * oct-dec/2 *", monthField, "10,12"},
		{Default, "0 0 * * sun,MON,Sat", weekdayField, "0,1,6"},
		{Quartz, "0 0 0 ? * sun,MON,Sat", weekdayField, "0,1,6"},
		{Vixie5, "0 0 * apr,may,sep,nov tue-thu", monthField, "4,5,9,11"},
		{Vixie5, "0 0 * * tue-thu", weekdayField, "2,3,4"},

		// Five, six and seven fields.
		{Default, "1 2 3 4 5", minuteField, "1"},
		{Default, "1 2 3 4 5 6", secondField, "1"},
		{Default, "1 2 3 4 5 6", weekdayField, "6"},
		{Default, "1 2 3 4 5 6 2030", yearField, "2030"},
		{Default, "0 0 0 1 1 * 1970,2199", yearField, "1970,2199"},
		{Default, "0 0 0 1 1 * 2030-2034/2", yearField, "2030,2032,2034"},
		{Default, "0 0 0 1 1 * 2195/2", yearField, "2195,2197,2199"},
		{Default, "0 0 0 1 1 * */100", yearField, "1970,2070,2170"},
		{Default, "0 0 0 1 1 * 1970-2199", yearField, "*"},
		{Quartz, "1 2 3 4 5 ? 2030", yearField, "2030"},
		{Quartz, "1 2 3 4 5 ?", secondField, "1"},

		// Further forms that users of Quartz write.
		{Quartz, "/20 0 0 * * ?", secondField, "0,20,40"},
		{Quartz, "0 7,/20 0 * * ?", minuteField, "0,7,20,40"},
		{Quartz, "0 0 /8 * * ?", hourField, "0,8,16"},
		{Quartz, "0 0 0 /10 * ?", dayField, "1,11,21,31"},
		{Quartz, "0 0 0 1 /5 ?", monthField, "1,6,11"},
		{Quartz, "0 0 0 ? * /3", weekdayField, "0,3,6"},
		{Quartz, "0 0/0 0 * * ?", minuteField, "0"},
		{Quartz, "0 5/00,7 0 * * ?", minuteField, "5,7"},
		{Quartz, "0 0/90 0 * * ?", minuteField, "0"},
		{Quartz, "0 0 0 ? * 2/0", weekdayField, "1"},
		{Quartz, "0 0 0 ? * THUR", weekdayField, "4"},
		{Quartz, "0 0 0 ? * Monday,thurs", weekdayField, "1,4"},
		{Quartz, "0 0 0 ? * MON-FRIDAY", weekdayField, "1,2,3,4,5"},
		{Quartz, "0 0 0 1 FEBRUARY,june ?", monthField, "2,6"},
		{Quartz, "0 0 0 L,L-3 * ?", dayField, "L-0,L-3"},
		{Quartz, "0 0 0 ? * 2#1,2#3,6L", weekdayField, "1#1,1#3,5#L"},
		{Default, "  0\t 12  * * *  ", hourField, "12"},

		// From a value to the end.
		{Default, "5/15 * * * *", minuteField, "5,20,35,50"},
		{Default, "59/1 * * * *", minuteField, "59"},
		{Default, "0 20/1 * * *", hourField, "20,21,22,23"},
		{Default, "0 0 28/2 * *", dayField, "28,30"},
		{Default, "0 0 1 nov/1 *", monthField, "11,12"},
		{Default, "0 0 * * 5/1", weekdayField, "5,6"},
		{Default, "0 0 * * 5/2", weekdayField, "5"},
		{Default, "0 0 * * 7/2", weekdayField, "0,2,4,6"},
		{Default, "0 0 * * sun/3", weekdayField, "0,3,6"},
		{Quartz, "0 0 0 ? * 5/2", weekdayField, "4,6"},

		// Around the end of a field.
		{Default, "58-1 * * * *", minuteField, "0,1,58,59"},
		{Default, "0 22-2 * * *", hourField, "0,1,2,22,23"},
		{Default, "0 20-4/3 * * *", hourField, "2,20,23"},
		{Default, "0 0 30-2 * *", dayField, "1,2,30,31"},
		{Default, "0 0 28-4/3 * *", dayField, "3,28,31"},
		{Default, "0 0 1 nov-feb *", monthField, "1,2,11,12"},
		{Default, "0 0 1 11-2/2 *", monthField, "1,11"},
		{Default, "0 0 * * fri-mon", weekdayField, "0,1,5,6"},
		{Default, "0 0 * * 5-1/2", weekdayField, "0,5"},
		{Default, "58-1 0 0 1 1 *", secondField, "0,1,58,59"},
		{Quartz, "0 0 0 ? * 6-2", weekdayField, "0,1,5,6"},
		{Quartz, "0 0 0 ? * 6-2/2", weekdayField, "0,5"},

		// Seven is Sunday, too.
		{Default, "0 0 * * 7", weekdayField, "0"},
		{Default, "0 0 * * 0,7", weekdayField, "0"},
		{Default, "0 0 * * 5-7", weekdayField, "0,5,6"},
		{Default, "0 0 * * 7-7", weekdayField, "0"},
		{Default, "0 0 * * 0-7", weekdayField, "*"},
		{Default, "0 0 * * 1-7", weekdayField, "*"},
		{Default, "0 0 * * 7-2", weekdayField, "0,1,2"},
		{Default, "0 0 * * 7-6/3", weekdayField, "0,3,6"},
		{Default, "0 0 * * 7-0", weekdayField, "0"},
		{Default, "0 0 * * 4-7/3", weekdayField, "0,4"},
		{Default, "0 0 * * 1-7/2", weekdayField, "0,1,3,5"},
		{Default, "0 0 * * 0-7/7", weekdayField, "0"},
		{Default, "0 0 * * sat-7", weekdayField, "0,6"},
		{Vixie5, "0 0 * * 5-7", weekdayField, "0,5,6"},
		{Vixie5, "0 0 * * 1-7/2", weekdayField, "0,1,3,5"},
		{Vixie5, "0 0 * * 5-0", weekdayField, "0,5,6"},
		{Vixie5, "0 0 * * fri-sun", weekdayField, "0,5,6"},
		{Vixie5, "0 0 * * 0-0", weekdayField, "0"},
		{Vixie5, "0 0 * * sun-sun", weekdayField, "0"},
		{Vixie5, "0 0 * * 7-0", weekdayField, "0"},
		{Vixie5, "0 0 * * 7-7", weekdayField, "0"},
		{Vixie5, "0 0 * * 7", weekdayField, "0"},
		{Quartz, "0 0 0 ? * 7", weekdayField, "6"},
		{Quartz, "0 0 0 ? * 1", weekdayField, "0"},
		{Quartz, "0 0 0 ? * 2-6", weekdayField, "1,2,3,4,5"},

		// Special days of the month.
		{Default, "0 0 L * *", dayField, "L-0"},
		{Default, "0 0 l * *", dayField, "L-0"},
		{Default, "0 0 L-0 * *", dayField, "L-0"},
		{Default, "0 0 L-30 * *", dayField, "L-30"},
		{Default, "0 0 LW * *", dayField, "L-0W"},
		{Default, "0 0 lw * *", dayField, "L-0W"},
		{Default, "0 0 L-3W * *", dayField, "L-3W"},
		{Default, "0 0 15W * *", dayField, "15W"},
		{Default, "0 0 1w,31W * *", dayField, "1W,31W"},
		{Default, "0 0 1,10-12,L * *", dayField, "1,10,11,12,L-0"},
		{Quartz, "0 0 0 L-2,LW,15W,3 * ?", dayField, "3,L-0W,L-2,15W"},
		// "Any day" adds nothing to another day field.
		{Default, "0 0 *,L * *", dayField, "*"},
		{Default, "0 0 * * *,5#1", weekdayField, "*"},

		// Special days of the week.
		{Default, "0 0 * * 5#2", weekdayField, "5#2"},
		{Default, "0 0 * * fri#2", weekdayField, "5#2"},
		{Default, "0 0 * * 0#1", weekdayField, "0#1"},
		{Default, "0 0 * * 7#1", weekdayField, "0#1"},
		{Default, "0 0 * * 6#5", weekdayField, "6#5"},
		{Default, "0 0 * * 5L", weekdayField, "5#L"},
		{Default, "0 0 * * 5#L", weekdayField, "5#L"},
		{Default, "0 0 * * 5#l", weekdayField, "5#L"},
		{Default, "0 0 * * friL", weekdayField, "5#L"},
		{Default, "0 0 * * fridayL", weekdayField, "5#L"},
		{Default, "0 0 * * Sunday,monday,TUESDAY,wednesday#2", weekdayField, "0,1,2,3#2"},
		{Default, "0 0 * * thursday-saturday", weekdayField, "4,5,6"},
		{Default, "0 0 * january,FEBRUARY,march,april,may,june *", monthField, "1,2,3,4,5,6"},
		{Default, "0 0 * july-september,october,November,december/2 *", monthField, "7,8,9,10,11,12"},
		{Default, "0 0 * * 7L", weekdayField, "0#L"},
		{Default, "0 0 * * 1,5#2,5#4,0L", weekdayField, "1,0#L,5#2,5#4"},
		{Quartz, "0 0 0 ? * 6#2", weekdayField, "5#2"},
		{Quartz, "0 0 0 ? * 6L", weekdayField, "5#L"},
		{Quartz, "0 0 0 ? * FRIL", weekdayField, "5#L"},
		{Quartz, "0 0 0 ? * L", weekdayField, "6"},
		{Quartz, "0 0 0 ? * L,2", weekdayField, "1,6"},
		{Quartz, "0 0 0 ? * 1#5", weekdayField, "0#5"},

		// The question mark is a star.
		{Default, "0 0 ? * 1", dayField, "*"},
		{Default, "0 0 1 * ?", weekdayField, "*"},
		{Default, "0 0 ? * ?", weekdayField, "*"},
		{Quartz, "0 0 0 ? * 2", dayField, "*"},
		{Quartz, "0 0 0 2 * ?", weekdayField, "*"},
	} {
		e, err := Parse(test.expr, WithDialect(test.dialect))
		if err != nil {
			t.Errorf("%q (%s): %v", test.expr, test.dialect, err)
			continue
		}
		if got := compiled(e, test.field); got != test.want {
			t.Errorf("%q (%s): %s is %s, want %s", test.expr, test.dialect, specs[test.field].name, got, test.want)
		}
	}
}

// The star rule: the first character of either day field decides.
func TestDayFieldsCombine(t *testing.T) {
	for _, test := range []struct {
		dialect Dialect
		expr    string
		or      bool
	}{
		{Default, "0 0 13 * 5", true},
		{Default, "0 0 1-30 * 0-5", true},
		{Default, "0 0 13,* * 5", false}, // any day of the month or a Friday: any day
		{Default, "0 0 L * 1", true},
		{Default, "0 0 15W * 1#2", true},
		{Default, "0 0 10/5 * 1", true},
		{Default, "0 0 * * 5", false},
		{Default, "0 0 13 * *", false},
		{Default, "0 0 */2 * 1", false},
		{Default, "0 0 13 * */2", false},
		{Default, "0 0 *,13 * 5", false},
		{Default, "0 0 */3,L * 5", false},
		{Default, "0 0 ? * 5", false},
		{Default, "0 0 13 * ?", false},
		{Default, "0 0 13 * +5", false},
		{Default, "0 0 13 * +5#2", false},
		{Default, "0 0 13 * +1-5,0", false},
		{Vixie5, "0 0 13 * 5", true},
		{Vixie5, "0 0 */2 * 1", false},
		{Vixie5, "0 0 1 * */3", false},
		{Quartz, "0 0 0 13 * ?", false},
		{Quartz, "0 0 0 ? * 5", false},
	} {
		e, err := Parse(test.expr, WithDialect(test.dialect))
		if err != nil {
			t.Errorf("%q (%s): %v", test.expr, test.dialect, err)
			continue
		}
		if e.has(either) != test.or {
			t.Errorf("%q (%s): a day of either field is a day: %t, want %t", test.expr, test.dialect, e.has(either), test.or)
		}
	}
	for _, drawn := range []string{"0 0 H * 1", "0 0 1 * H", "0 0 ~ * 1", "0 0 1 * ~"} {
		e, err := Parse(drawn, WithJob("default", "backup"))
		if err != nil {
			t.Fatal(err)
		}
		if !e.has(either) {
			t.Errorf("%q: H and ~ restrict their field, so a day of either is one", drawn)
		}
	}
}

func TestWildcardSchedules(t *testing.T) {
	for _, test := range []struct {
		dialect  Dialect
		expr     string
		wildcard bool
	}{
		{Default, "* * * * *", true},
		{Default, "*/5 3 * * *", true},
		{Default, "0 * * * *", true},
		{Default, "0 */2 * * *", true},
		{Default, "0 *,5 * * *", true},
		{Default, "* 0 3 * * *", true},
		{Default, "0 0 3 * * *", false},
		{Default, "30 2 * * *", false},
		{Default, "0 0-23 * * *", false},
		{Default, "0 5,* * * *", false},
		{Default, "0/5 3 * * *", false},
		{Default, "0 0 * * *", false},
		{Default, "0 0 * * */2", false},
		{Vixie5, "@hourly", true},
		{Vixie5, "@daily", false},
		{Quartz, "* 0 0 ? * *", true},
		{Quartz, "0 0/5 * ? * *", true},
		{Quartz, "0 0/5 1 ? * *", false},
	} {
		e, err := Parse(test.expr, WithDialect(test.dialect))
		if err != nil {
			t.Errorf("%q (%s): %v", test.expr, test.dialect, err)
			continue
		}
		if e.has(wildcard) != test.wildcard {
			t.Errorf("%q (%s): wildcard is %t, want %t", test.expr, test.dialect, e.has(wildcard), test.wildcard)
		}
	}
	for _, drawn := range []string{"H H * * *", "~ 0 * * *", "H/5 3 * * *"} {
		e, err := Parse(drawn, WithJob("default", "backup"))
		if err != nil {
			t.Fatal(err)
		}
		if e.has(wildcard) {
			t.Errorf("%q: H and ~ are fixed times", drawn)
		}
	}
}

func TestMacros(t *testing.T) {
	for macro, expr := range map[string]string{
		"@yearly":    "0 0 1 1 *",
		"@annually":  "0 0 1 1 *",
		"@monthly":   "0 0 1 * *",
		"@weekly":    "0 0 * * 0",
		"@daily":     "0 0 * * *",
		"@midnight":  "0 0 * * *",
		"@hourly":    "0 * * * *",
		"@Daily":     "0 0 * * *",
		" @daily \t": "0 0 * * *",
	} {
		for _, dialect := range []Dialect{Default, Vixie5} {
			if dialect == Vixie5 && macro == "@Daily" {
				continue // refused, as by cronie
			}
			got, err := Parse(macro, WithDialect(dialect))
			if err != nil {
				t.Errorf("%q (%s): %v", macro, dialect, err)
				continue
			}
			want, err := Parse(expr, WithDialect(dialect))
			if err != nil {
				t.Fatal(err)
			}
			if !got.Equal(want) {
				t.Errorf("%q (%s) is %s, want %s", macro, dialect, got, want)
			}
		}
	}
}

// The values of H and ~ never change and are the same on every machine: the first
// eight bytes of SHA-256 over "namespace/name", a zero byte and the number of the
// field, modulo the size of the range. These were computed by another program.
func TestDrawnValuesNeverChange(t *testing.T) {
	for _, test := range []struct {
		namespace, name string
		expr            string
		field           int
		want            string
	}{
		{"default", "backup", "H H H H H H", secondField, "20"},
		{"default", "backup", "H H H H H H", minuteField, "15"},
		{"default", "backup", "H H H H H H", hourField, "3"},
		{"default", "backup", "H H H H H H", dayField, "13"}, // among the 28 days that every month has
		{"default", "backup", "H H H H H H", monthField, "12"},
		{"default", "backup", "H H H H H H", weekdayField, "1"},
		{"default", "backup", "~ ~ ~ ~ ~ ~", secondField, "20"},
		{"default", "backup", "~ ~ ~ ~ ~ ~", minuteField, "15"},
		{"default", "backup", "~ ~ ~ ~ ~ ~", hourField, "3"},
		{"default", "backup", "~ ~ ~ ~ ~ ~", dayField, "4"}, // among all 31 days, as in cronie
		{"default", "backup", "~ ~ ~ ~ ~ ~", monthField, "12"},
		{"default", "backup", "~ ~ ~ ~ ~ ~", weekdayField, "1"},
		{"payroll", "月报", "H H H H H H", minuteField, "57"},
		{"payroll", "月报", "H H H H H H", hourField, "15"},
		{"payroll", "月报", "H H H H H H", dayField, "16"},
		{"payroll", "月报", "~ ~ ~ ~ ~ ~", dayField, "31"},
		{"payroll", "月报", "H H H H H H", monthField, "8"},
		{"payroll", "月报", "H H H H H H", weekdayField, "3"},
		{"default", "backup", "H/15 * * * *", minuteField, "0,15,30,45"},
		{"payroll", "月报", "H/15 * * * *", minuteField, "12,27,42,57"},
		{"a/b", "c", "H/15 * * * *", minuteField, "10,25,40,55"},
		{"a", "b/c", "H/15 * * * *", minuteField, "10,25,40,55"},
		{"default", "backup", "H(0-29) * * * *", minuteField, "15"},
		{"payroll", "月报", "H(0-29) * * * *", minuteField, "27"},
		{"default", "backup", "0 H(9-17) * * *", hourField, "15"},
		{"default", "backup", "0 H(9-17)/4 * * *", hourField, "12,16"},
		{"default", "backup", "0 h(9-17)/4 * * *", hourField, "12,16"},
		{"default", "backup", "0 0 1 H/3 *", monthField, "3,6,9,12"},
		{"payroll", "月报", "0 0 1 H/3 *", monthField, "2,5,8,11"},
		{"default", "backup", "0 0 * * H(1-7)", weekdayField, "2"},
		{"default", "backup", "0 0 * * H(7-2)", weekdayField, "1"},
		{"payroll", "月报", "0 0 * * H(7-2)", weekdayField, "1"},
		{"default", "backup", "0 0 * * H(7-7)", weekdayField, "0"},
		{"a/b", "c", "0 0 * * H(MON-SAT)", weekdayField, "5"},
		{"default", "backup", "0 2~5 * * *", hourField, "5"},
		{"payroll", "月报", "0 2~5 * * *", hourField, "5"},
		{"default", "backup", "0 0 * * 1~7", weekdayField, "2"},
		{"default", "backup", "30,H * * * *", minuteField, "15,30"},
		{"default", "backup", "30,~ * * * *", minuteField, "15,30"},
	} {
		e, err := Parse(test.expr, WithJob(test.namespace, test.name))
		if err != nil {
			t.Errorf("%q: %v", test.expr, err)
			continue
		}
		if got := compiled(e, test.field); got != test.want {
			t.Errorf("%q of %s/%s: %s is %s, want %s", test.expr, test.namespace, test.name, specs[test.field].name, got, test.want)
		}
	}
}

func TestZonePrefix(t *testing.T) {
	berlin := loadZone(t, "Europe/Berlin")
	for _, test := range []struct{ expr, zone string }{
		{"TZ=Europe/Berlin 0 0 * * *", "Europe/Berlin"},
		{"CRON_TZ=Asia/Shanghai 0 0 * * *", "Asia/Shanghai"},
		{"TZ=UTC \t @daily", "UTC"},
		{"  TZ=Europe/Paris 0 0 * * *", "Europe/Paris"},
		{"0 0 * * *", "UTC"},
	} {
		e, err := Parse(test.expr)
		if err != nil {
			t.Errorf("%q: %v", test.expr, err)
		} else if e.Zone().Name() != test.zone {
			t.Errorf("%q: the zone is %s, want %s", test.expr, e.Zone(), test.zone)
		}
	}
	if _, err := Parse("TZ=Europe/Berlin 0 0 * * *", In(berlin)); err != nil {
		t.Errorf("the same zone named twice: %v", err)
	}
	_, err := Parse("TZ=Asia/Tokyo 0 0 * * *", In(berlin))
	if err == nil || !strings.Contains(err.Error(), "Asia/Tokyo") || !strings.Contains(err.Error(), "Europe/Berlin") {
		t.Errorf("two different zones: %v, want an error that names both", err)
	}
}

func TestErrorsSayWhereAndWhat(t *testing.T) {
	const wanted = "5 (minute, hour, day of month, month, day of week), 6 (a second in front) or 7 (a year at the end besides)"
	for _, test := range []struct {
		dialect  Dialect
		expr     string
		field    string
		pos, len int
		problem  string
		allowed  string
		hint     string
	}{
		// Out of range.
		{Default, "61 * * * *", "minute", 0, 2, "61 is out of range", "0-59", ""},
		{Default, "* 24 * * *", "hour", 2, 2, "24 is out of range", "0-23", ""},
		{Default, "* * 0 * *", "day of month", 4, 1, "0 is out of range", "1-31", ""},
		{Default, "0 0 1,32 * *", "day of month", 6, 2, "32 is out of range", "1-31", ""},
		{Default, "* * * 13 *", "month", 6, 2, "13 is out of range", "1-12 or JAN-DEC", ""},
		{Default, "* * * * 1-8", "day of week", 10, 1, "8 is out of range", "0-7 or SUN-SAT", ""},
		{Default, "60 * * * * *", "second", 0, 2, "60 is out of range", "0-59", ""},
		{Default, "0 0 0 1 1 * 2200", "year", 12, 4, "2200 is out of range", "1970-2199", ""},
		{Default, "0 0 0 1 1 * 1969", "year", 12, 4, "1969 is out of range", "1970-2199", ""},
		{Default, "99999999999999999999 * * * *", "minute", 0, 20, "99999999999999999999 is out of range", "0-59", ""},
		{Quartz, "0 0 0 ? * 0", "day of week", 10, 1, "0 is out of range", "1-7 or SUN-SAT", "Sunday is 1 in the quartz dialect"},
		{Quartz, "0 0 0 ? * 8", "day of week", 10, 1, "8 is out of range", "1-7 or SUN-SAT", ""},

		// Neither a number nor a name.
		{Default, "* * * * MON-FIR", "day of week", 12, 3, `"FIR" is not a number or a name`, "0-7 or SUN-SAT", "did you mean FRI?"},
		{Default, "* * * JNA *", "month", 6, 3, `"JNA" is not a number or a name`, "1-12 or JAN-DEC", "did you mean JAN?"},
		{Default, "* * * * mond", "day of week", 8, 4, `"mond" is not a number or a name`, "0-7 or SUN-SAT", "did you mean MON?"},
		{Default, "* * * * Tuesdays", "day of week", 8, 8, `"Tuesdays" is not a number or a name`, "0-7 or SUN-SAT", "did you mean TUE?"},
		{Default, "* * * foo *", "month", 6, 3, `"foo" is not a number or a name`, "1-12 or JAN-DEC", ""},
		{Default, "* * mon * *", "day of month", 4, 3, `"mon" is a day of week`, "1-31", ""},
		{Default, "0 0 jan * *", "day of month", 4, 3, `"jan" is a month`, "1-31", ""},
		{Default, "0x1 * * * *", "minute", 0, 3, `"0x1" is not a number`, "0-59", ""},

		// Steps, ranges and lists.
		{Default, "*/0 * * * *", "minute", 2, 1, "a step of 0 goes nowhere", "1 or more", ""},
		{Default, "*/ * * * *", "minute", 2, 0, "the step is missing", "1 or more", ""},
		{Default, "*/a * * * *", "minute", 2, 1, `the step "a" is not a number`, "1 or more", ""},
		{Default, "1- * * * *", "minute", 2, 0, "the end of the range is missing", "0-59", ""},
		{Default, "1-2-3 * * * *", "minute", 3, 1, `"-" is not expected here`, "", "a range is written a-b"},
		{Default, "1,,2 * * * *", "minute", 2, 1, "a value is missing", "0-59", ""},
		{Default, "1, * * * *", "minute", 2, 0, "a value is missing", "0-59", ""},
		{Default, "1.5 * * * *", "minute", 1, 1, `"." is not expected here`, "", "values are whole numbers"},
		{Default, "5* * * * *", "minute", 1, 1, `"*" is not expected here`, "", "a star stands alone, or in front of a step: */n"},
		{Default, "ä * * * *", "minute", 0, 2, `"ä" is not expected here`, "", ""},
		{Default, "0 0 0 1 1 * 2030-2027", "year", 12, 9, "the range 2030-2027 ends before it begins", "", "years do not wrap around"},
		{Vixie5, "5-1 * * * *", "minute", 0, 3, "the range 5-1 ends before it begins", "", "ranges do not wrap around in the vixie5 dialect"},
		{Vixie5, "0 0 * * 5-1", "day of week", 8, 3, "the range 5-1 ends before it begins", "", "ranges do not wrap around in the vixie5 dialect"},
		{Vixie5, "0 0 * * 7-2", "day of week", 8, 3, "the range 7-2 ends before it begins", "", "ranges do not wrap around in the vixie5 dialect"},
		{Vixie5, "0 0 * * 7-0/2", "day of week", 8, 5, "a range that ends in Sunday as 0 takes no step", "", "write 7 for its end"},
		{Vixie5, "0 0 * * 5-0/2", "day of week", 8, 5, "a range that ends in Sunday as 0 takes no step", "", "write 7 for its end"},
		{Vixie5, "5/15 * * * *", "minute", 0, 4, "a step after a single value is not part of the vixie5 dialect", "", "write 5-59/15"},

		// Numbers of fields.
		{Default, "", "", 0, 0, "the expression is empty", wanted, ""},
		{Default, "* * * *", "", 7, 0, "found 4 fields", wanted, ""},
		{Default, "* * * * * * * *", "", 14, 1, "found 8 fields", wanted, ""},
		{Vixie5, "* * * * * *", "", 10, 1, "found 6 fields", "5 (minute, hour, day of month, month, day of week)", "the default dialect has seconds and years"},
		{Quartz, "* * * * *", "", 9, 0, "found 5 fields", "6 (second, minute, hour, day of month, month, day of week) or 7 (a year at the end)", "the default dialect takes 5 fields"},
		{Default, "0 0 * * 1 2027", "day of week", 10, 4,
			"six fields begin with the second, so 2027 would be the day of week, but it looks like a year", "",
			`with a year there are seven fields: write "0 0 0 * * 1 2027" for that year, or a day of week in place of 2027`},

		// Special days and signs where they have no place.
		{Default, "? * * * *", "minute", 0, 1, `"?" stands only in day of month and day of week`, "", `write "*"`},
		{Default, "* * ?,1 * *", "day of month", 4, 3, `"?" stands alone in its field`, "", ""},
		{Default, "0 0 W * *", "day of month", 4, 1, "W needs the day to be nearest to", "", `such as "15W"; "LW" is the last working day`},
		{Default, "0 0 32W * *", "day of month", 4, 2, "32 is out of range", "1-31", ""},
		{Default, "0 0 L-31 * *", "day of month", 6, 2, "31 days before the last is out of range", "0-30", ""},
		{Default, "0 0 L- * *", "day of month", 6, 0, "after L- a number of days is wanted", "0-30", ""},
		{Default, "0 0 L/2 * *", "day of month", 5, 1, `"/" is not expected here`, "", ""},
		{Default, "L * * * *", "minute", 0, 1, `"L" is not a number`, "0-59", "L and W stand in day of month, and L behind a day of week"},
		{Default, "0 0 * * L", "day of week", 8, 1, "L needs a day of the week", "", `such as "5L" or "FRIL"; Saturday is "6"`},
		{Default, "0 0 * * 5#6", "day of week", 10, 1, "#6 is out of range", "1-5 or L", ""},
		{Default, "0 0 * * 5#0", "day of week", 10, 1, "#0 is out of range", "1-5 or L", ""},
		{Default, "0 0 * * 5#", "day of week", 10, 0, "after # the number of the week is wanted", "1-5 or L", ""},
		{Default, "0 0 5#2 * *", "day of month", 5, 1, `"#" is not expected here`, "", "d#n stands in day of week: 5#2 is the second Friday"},
		{Default, "+0 0 * * *", "minute", 0, 1, `"+" is not expected here`, "", "a plus sign stands in front of day of week only"},
		{Vixie5, "0 0 L * *", "day of month", 4, 1, `"L" is not a number`, "1-31", "L and W are part of the default and quartz dialects"},
		{Vixie5, "0 0 ? * *", "day of month", 4, 1, `"?" is not part of the vixie5 dialect`, "", `write "*"`},
		{Vixie5, "0 0 * * 5#2", "day of week", 9, 1, `"#" is not expected here`, "", "d#n is part of the default and quartz dialects"},
		{Vixie5, "H * * * *", "minute", 0, 1, `"H" is not a number`, "0-59", "H is part of the default dialect"},
		{Vixie5, "0 0 * * +1", "day of week", 8, 1, `"+" is not expected here`, "", "a plus sign is part of the default dialect, in front of day of week"},
		{Quartz, "0 0 0 1 * 1", "day of month", 6, 5, `the quartz dialect requires a "?" in day of month or day of week`, "", ""},
		{Quartz, "0 0 0 ? * ?", "day of month", 6, 5, `only one of day of month and day of week may be "?"`, "", ""},

		{Quartz, "0 0 0 1-15W * ?", "day of month", 8, 3, `"15W" is not a number`, "1-31", `W stands behind a single day: write "15W", or a range without W`},
		{Default, "0 0 1-15w * *", "day of month", 6, 3, `"15w" is not a number`, "1-31", `W stands behind a single day: write "15w", or a range without W`},
		{Quartz, "0 */0 0 * * ?", "minute", 4, 1, "a step of 0 goes nowhere", "1 or more", ""},
		{Quartz, "0 1-5/0 0 * * ?", "minute", 6, 1, "a step of 0 goes nowhere", "1 or more", ""},
		{Quartz, "0 /0 0 * * ?", "minute", 3, 1, "a step of 0 goes nowhere", "1 or more", ""},
		{Quartz, "0 / 0 * * ?", "minute", 3, 0, "the step is missing", "1 or more", ""},
		{Quartz, "0 0/0x 0 * * ?", "minute", 4, 2, `the step "0x" is not a number`, "1 or more", ""},
		{Quartz, "0 0 0 ? * MONDAY-FRI", "day of week", 10, 6, `"MONDAY" is not a number or a name`, "1-7 or SUN-SAT", "did you mean MON?"},
		{Quartz, "0 0 0 ? * FRIDAYL", "day of week", 10, 6, `"FRIDAY" is not a number or a name`, "1-7 or SUN-SAT", "did you mean FRI?"},
		{Quartz, "0 0 0 ? * THU5", "day of week", 10, 4, `"THU5" is not a number or a name`, "1-7 or SUN-SAT", "did you mean THU?"},
		{Default, "0 0 * * fridays", "day of week", 8, 7, `"fridays" is not a number or a name`, "0-7 or SUN-SAT", "did you mean FRI?"},
		{Default, "0 0 * maya *", "month", 6, 4, `"maya" is not a number or a name`, "1-12 or JAN-DEC", "did you mean MAY?"},
		{Vixie5, "0 0 * * friday", "day of week", 8, 6, `"friday" is not a number or a name`, "0-7 or SUN-SAT", "did you mean FRI?"},
		{Default, "0 0 * * THUR", "day of week", 8, 4, `"THUR" is not a number or a name`, "0-7 or SUN-SAT", "did you mean THU?"},
		{Default, "/5 * * * *", "minute", 0, 1, `"/" is not expected here`, "", ""},
		{Default, "0/0 * * * *", "minute", 2, 1, "a step of 0 goes nowhere", "1 or more", ""},

		// Drawn values without a job, or where nothing can be drawn.
		{Default, "0 H * * *", "hour", 2, 1, "H draws its value from the name of a job, and none is given", "", ""},
		{Default, "0 2~5 * * *", "hour", 3, 1, "~ draws its value from the name of a job, and none is given", "", ""},
		{Default, "0 0 0 1 1 * H", "year", 12, 1, "H has no place here", "", ""},
		{Quartz, "0 0 H * * ?", "hour", 4, 1, "H has no place here", "", ""},
		{Quartz, "0 0 ~ * * ?", "hour", 4, 1, "a random range has no place here", "", ""},

		// Macros and zones.
		{Default, "@dayly", "", 0, 6, "@dayly is not known", "@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly", "did you mean @daily?"},
		{Default, "@every 5m", "", 0, 6, "@every is an interval, not a cron expression", "", "ParseSchedule reads both; in a job file schedule.every says it"},
		{Default, "@reboot", "", 0, 7, "@reboot is not a time", "", "in a job file schedule.boot says it"},
		{Default, "@daily x", "", 7, 1, "@daily stands alone", "", ""},
		{Vixie5, "@Daily", "", 0, 6, "@Daily is not part of the vixie5 dialect, whose macros are in lower case", "", "write @daily"},
		{Vixie5, "@every 5m", "", 0, 6, "@every is not part of the vixie5 dialect", "", ""},
		{Quartz, "@daily", "", 0, 6, "@daily is not part of the quartz dialect", "", ""},
		{Default, "TZ=0 * * * * *", "", 3, 1, `unknown time zone "0": an IANA name such as "Europe/Berlin" is wanted`, "", ""},
		{Default, "TZ= * * * * *", "", 3, 0, `unknown time zone "": an IANA name such as "Europe/Berlin" is wanted`, "", ""},
		{Default, "CRON_TZ=Europe/Berln 0 0 * * *", "", 8, 12, `unknown time zone "Europe/Berln": did you mean "Europe/Berlin"?`, "", ""},
		{Default, "TZ=UTC", "", 6, 0, "the expression is empty", wanted, ""},
		{Vixie5, "TZ=UTC * * * * *", "", 0, 6, "a zone in front of the expression is not part of the vixie5 dialect", "", ""},
	} {
		e, err := Parse(test.expr, WithDialect(test.dialect))
		if err == nil {
			t.Errorf("%q (%s) was accepted as %s", test.expr, test.dialect, e)
			continue
		}
		var got *ParseError
		if !errors.As(err, &got) {
			t.Errorf("%q (%s): the error is a %T", test.expr, test.dialect, err)
			continue
		}
		want := ParseError{Expr: test.expr, Field: test.field, Pos: test.pos, Len: test.len, Problem: test.problem, Allowed: test.allowed, Hint: test.hint}
		want.wording, want.hint = got.wording, got.hint
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%q (%s):\n got %#v\nwant %#v", test.expr, test.dialect, *got, want)
		}
	}
}

func TestErrorInOneLine(t *testing.T) {
	for _, test := range []struct{ expr, want string }{
		{"61 * * * *", `minute: 61 is out of range, allowed is 0-59 (at position 1 of "61 * * * *")`},
		{"* * * * MON-FIR", `day of week: "FIR" is not a number or a name, allowed is 0-7 or SUN-SAT (at position 13 of "* * * * MON-FIR"); did you mean FRI?`},
		{"* * * * *\n", `day of week: "\n" is not expected here (at position 10 of "* * * * *\n")`},
	} {
		_, err := Parse(test.expr)
		if err == nil || err.Error() != test.want {
			t.Errorf("%q: got  %v\nwant %s", test.expr, err, test.want)
		}
	}
}

func TestLengthIsBounded(t *testing.T) {
	longest := strings.Repeat("0,", 123) + "00 * * * *"
	if len(longest) != 256 {
		t.Fatalf("the test wants 256 characters, has %d", len(longest))
	}
	if _, err := Parse(longest); err != nil {
		t.Errorf("256 characters: %v", err)
	}
	_, err := Parse(longest + " ")
	var parseError *ParseError
	if !errors.As(err, &parseError) || parseError.Problem != "the expression is 257 characters long" || parseError.Allowed != "at most 256" {
		t.Errorf("257 characters: %v", err)
	}
	// However long, the message is not.
	_, err = Parse(strings.Repeat("* ", 1<<20))
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("two million characters: the message has %d", len(err.Error()))
	}
}

func TestNamesOfDialectsAndRules(t *testing.T) {
	for d := Default; d <= Quartz; d++ {
		if got, err := ParseDialect(d.String()); err != nil || got != d {
			t.Errorf("dialect %s is read as %s, %v", d, got, err)
		}
	}
	for c := Vixie; c <= SkipLast; c++ {
		if got, err := ParseClockChange(c.String()); err != nil || got != c {
			t.Errorf("rule %s is read as %s, %v", c, got, err)
		}
	}
	if _, err := ParseDialect("quarz"); err == nil || !strings.Contains(err.Error(), `did you mean "quartz"?`) {
		t.Errorf("quarz: %v", err)
	}
	if _, err := ParseClockChange("skip"); err == nil || !strings.Contains(err.Error(), "vixie, literal, skip_once, shift_once, skip_last") {
		t.Errorf("skip: %v", err)
	}
	if got := Dialect(9).String(); got != "invalid(9)" {
		t.Errorf("the ninth dialect is called %s", got)
	}
}

func TestEqual(t *testing.T) {
	berlin := loadZone(t, "Europe/Berlin")
	parse := func(expr string, opts ...Option) *Expression {
		t.Helper()
		e, err := Parse(expr, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	base := parse("0 0 * * 1-5")
	for _, same := range []*Expression{
		parse("0 0 * * mon-fri"), parse("0 0 0 * * 1,2,3,4,5"), parse("0 0 * * MON-FRI", WithDialect(Vixie5)),
		parse("0 0 0 ? * 2-6", WithDialect(Quartz)), parse("0 0 ? * 1-5"), parse("0 0 0 * * 1-5 *"), parse("TZ=UTC 0 0 * * 1-5"),
	} {
		if !base.Equal(same) || !same.Equal(base) {
			t.Errorf("%s (%s) is not equal to %s", same, same.Dialect(), base)
		}
	}
	for _, other := range []*Expression{
		parse("0 0 * * 1-6"), parse("0 0 * * 1-5", In(berlin)), parse("0 0 * * 1-5", WithClockChange(Literal)),
		parse("0 0 0 * * 1-5 2030"), parse("0 0 1 * 1-5"),
	} {
		if base.Equal(other) {
			t.Errorf("%s in %s (%s) is equal to %s", other, other.Zone(), other.ClockChange(), base)
		}
	}
	// A star at the front of the minute matters where the clock changes.
	if parse("* 2 * * *").Equal(parse("0-59 2 * * *")) {
		t.Error("a wildcard schedule is equal to one of fixed times")
	}
}

func TestExpressionsThatNeverFallDue(t *testing.T) {
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for _, expr := range []string{
		"0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 0 1 1 * 2025", "0 0 0 29 2 * 2027", "0 0 30W 2 *", "0 0 L-30 4 *", "0 0 L-29W 2 *",
	} {
		e, err := Parse(expr)
		if err != nil {
			t.Errorf("%q: %v", expr, err)
			continue
		}
		if got := e.Next(now); !got.IsZero() {
			t.Errorf("%q falls due at %s", expr, stamp(got))
		}
	}
}
