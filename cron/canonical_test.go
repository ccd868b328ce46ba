package cron

import "testing"

func TestCanonicalForm(t *testing.T) {
	for _, c := range []struct {
		dialect Dialect
		expr    string
		want    string
	}{
		// A star and what equals it are written alike.
		{Default, "0-59 * * * *", "* * * * *"},
		{Default, "*/1 */1 * * *", "* * * * *"},
		{Default, "*/7 * * * *", "*/7 * * * *"},
		{Default, "5/15 * * * *", "5-50/15 * * * *"},
		{Default, "1,2,3,5-10 * * * *", "1-3,5-10 * * * *"},
		{Default, "*/2,*/3,*/7 * * * * *", "0-58/2,3-57/3,7-49/7 * * * * *"},
		{Default, "0 0 0 1 1 * *", "0 0 1 1 *"},
		{Default, "0 0 0 29 2 * 2028-2060/4", "0 0 0 29 2 * 2028-2060/4"},
		{Default, "@daily", "0 0 * * *"},
		{Default, "0 9 * * FRI-MON", "0 9 * * 0,1,5,6"},
		{Default, "0 0,12 1-31/2 */3 *", "0 0,12 1-31/2 */3 *"},
		{Default, "0 0 1,L,15W,LW * 5#2,1L", "0 0 1,15W,L,LW * 1L,5#2"},
		// Fixed times stay without a star, wildcards keep one.
		{Default, "0 0-23 * * *", "0 0-23 * * *"},
		{Default, "*/60 30 2 * * *", "*/60 30 2 * * *"},
		{Default, "0 */24 * * *", "0 */24 * * *"},
		{Default, "0 */5,2 * * *", "0 */5,2 * * *"},
		// The rule for the day fields is kept, however it was written.
		{Default, "0 0 */2 * 1", "0 0 */2 * 1"},
		{Default, "0 0 1-31/2 * +1", "0 0 */2 * 1"},
		{Default, "0 0 */10,5 * 1", "0 0 1-31/10,5 * +1"},
		{Default, "0 0 13 * +5", "0 0 13 * +5"},
		{Default, "0 0 1-31 * 1", "0 0 * * *"},
		{Default, "0 0 *,13 * 5", "0 0 * * 5"},
		{Vixie5, "0 0 */10,5 * 1", "0 0 */10,5 * 1"},
		{Vixie5, "0 0 5 * */7,2", "0 0 5 * */7,2"},
		{Vixie5, "0 0 1 * *,5", "0 0 1 * *"},
		{Quartz, "0 0 12 ? * MON-FRI", "0 0 12 ? * 2-6"},
		{Quartz, "0 15 10 L-3W * ? 2027/2", "0 15 10 L-3W * ? 2027-2199/2"},
		{Quartz, "0 0 0 ? * 6#3,1L", "0 0 0 ? * 1L,6#3"},
		{Quartz, "* * * ? * *", "* * * * * ?"},
	} {
		e, err := Parse(c.expr, WithDialect(c.dialect))
		if err != nil {
			t.Errorf("%q: %v", c.expr, err)
			continue
		}
		if got := e.String(); got != c.want {
			t.Errorf("canonical form of %q (%s): got %q, want %q", c.expr, c.dialect, got, c.want)
		}
		again, err := Parse(c.want, WithDialect(c.dialect))
		if err != nil || !again.Equal(e) {
			t.Errorf("%q (%s) does not equal %q: %v", c.want, c.dialect, c.expr, err)
		}
	}
}
