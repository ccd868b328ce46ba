package cron

import (
	"slices"
	"testing"
)

const quartzForm = `"?" with seconds is the form of Quartz expressions, in which day of week 1 is Sunday; here 1 is Monday. ` +
	"The dialect quartz reads it as Quartz does"

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		dialect Dialect
		expr    string
		want    []string
	}{
		{Default, "*/5 * * * *", nil},
		{Default, "*/59 * * * *", nil},
		{Default, "*/70 * * * *", []string{"minute: a step of 70 in a field of 60 values matches the start only; for a fixed interval write every: 70m"}},
		{Default, "*/60 */25 * * *", []string{
			"minute: a step of 60 in a field of 60 values matches the start only",
			"hour: a step of 25 in a field of 24 values matches the start only; for a fixed interval write every: 25h",
		}},
		{Default, "0/90 * * * * *", []string{"second: a step of 90 in a field of 60 values matches the start only; for a fixed interval write every: 90s"}},
		{Default, "0 0 */31 * *", []string{"day of month: a step of 31 in a field of 31 values matches the start only"}},
		{Vixie5, "*/70 * * * *", []string{"minute: a step of 70 in a field of 60 values matches the start only; for a fixed interval write every: 70m"}},
		{Default, "0 0 12 ? * 2", []string{quartzForm}},
		{Default, "0 0 12 * * ? 2027", []string{quartzForm}},
		{Default, "0 12 ? * 2", nil},
		{Quartz, "0 0 12 ? * 2", nil},
		{Default, "TZ=EST 0 9 * * *", []string{"EST is UTC-5 all year; America/New_York has summer time"}},
		{Default, "TZ=MST 0 9 * * *", []string{"MST is UTC-7 all year; America/Denver has summer time"}},
		{Default, "TZ=Etc/GMT+5 0 9 * * *", []string{"Etc/GMT+5 is UTC-5: the sign in this name is reversed"}},
		{Default, "TZ=Etc/GMT-14 0 9 * * *", []string{"Etc/GMT-14 is UTC+14: the sign in this name is reversed"}},
		{Default, "TZ=Etc/GMT-0 0 9 * * *", nil},
		{Default, "TZ=Etc/GMT 0 9 * * *", nil},
		{Default, "TZ=HST 0 9 * * *", nil}, // as Pacific/Honolulu, all year
		{Default, "TZ=EST5EDT 0 9 * * *", nil},
		{Default, "@daily", nil},
		{Default, "no expression", nil},
	} {
		if got := Warnings(c.expr, WithDialect(c.dialect)); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: got %q, want %q", c.dialect, c.expr, got, c.want)
		}
	}
}
