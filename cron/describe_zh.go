package cron

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// chinese formats descriptions in simplified Chinese. Years and months come before days,
// and days before times.
type chinese struct{}

var (
	chineseWeekdays = [...]string{1: "周一", "周二", "周三", "周四", "周五", "周六", "周日"}
	chineseNumbers  = [...]string{1: "第一个", "第二个", "第三个", "第四个", "第五个", lastWeekday: "最后一个"}
	chineseUnits    = [...]string{inSeconds: "秒", inMinutes: "分钟", inHours: "小时"}
)

func (zh chinese) describe(d *description) string {
	times := zh.times(&d.times)
	days := zh.days(d)
	switch {
	case days == "":
		return times
	case strings.HasPrefix(times, "每"):
		return days + "，" + times
	default:
		return spaced(days, times)
	}
}

// days describes the days with their months and years.
func (zh chinese) days(d *description) string {
	switch d.rule {
	case byDate:
		return spaced(zh.scope(d), zh.dates(&d.dates)) + zh.remarks(zh.missing(&d.dates))
	case byBoth:
		return spaced(zh.scope(d), zh.dates(&d.dates)) + zh.remarks(zh.missing(&d.dates), zh.condition(d))
	case byEither:
		month := "每月"
		if d.months != nil {
			month = ""
		}
		text := spaced(month, zh.dates(&d.dates)) + zh.remarks(zh.missing(&d.dates))
		if !d.dates.one() || !d.weekdays.one() {
			text += "，"
		}
		return zh.heading(d) + text + "或" + zh.weekdays(&d.weekdays, month) + zh.remarks(zh.ifThere(&d.weekdays))
	case byWeekday:
		w := &d.weekdays
		switch {
		case len(w.every) == 0:
			return zh.scope(d) + zh.weekdays(w, "") + zh.remarks(zh.ifThere(w))
		case d.months == nil && (d.years == nil || len(w.nth) == 0):
			return zh.years(d) + zh.weekdays(w, "每月") + zh.remarks(zh.ifThere(w))
		case len(w.nth) == 0:
			return zh.scope(d) + zh.weekdays(w, "")
		case d.months == nil:
			return zh.heading(d) + zh.weekdays(w, "每月") + zh.remarks(zh.ifThere(w))
		default:
			return zh.heading(d) + zh.weekdays(w, "") + zh.remarks(zh.ifThere(w))
		}
	}
	text := ""
	switch {
	case d.months != nil:
		text = spaced(zh.yearly(d), zh.months(d.months))
	case d.years != nil:
		text = zh.years(d)
	}
	if !d.times.wholeDay() {
		text += "每天"
	}
	return text
}

// scope formats the months and years in which days are counted.
func (zh chinese) scope(d *description) string {
	if d.months == nil {
		return zh.years(d) + "每月"
	}
	text := spaced(zh.yearly(d), zh.months(d.months))
	if oneOf(d.months) && d.rule != byWeekday && len(d.dates.specials) == 0 && d.dates.parity == mixed {
		return text // 12 月 25 日
	}
	return text + "的"
}

// heading formats the months and years that restrict a choice of days.
func (zh chinese) heading(d *description) string {
	switch {
	case d.months != nil:
		return spaced(zh.yearly(d), zh.months(d.months)) + "："
	case d.years != nil:
		return zh.years(d) + "："
	default:
		return ""
	}
}

// yearly puts the years before the months.
func (zh chinese) yearly(d *description) string {
	if d.years == nil || !oneOf(d.years) {
		return zh.years(d) + "每年"
	}
	return zh.years(d)
}

func (zh chinese) years(d *description) string {
	return zh.values(d.years, " 年", "（每 ", " 年一次）")
}

func (zh chinese) months(months []stretch) string {
	return zh.values(months, " 月", "", "")
}

// times describes the times of a day.
func (zh chinese) times(t *times) string {
	if t.clock != nil {
		return zh.clocks(t.clock, t.seconds)
	}
	if t.step == 0 {
		return zh.factors(t)
	}
	every := zh.every(time.Duration(t.step) * time.Second)
	switch {
	case t.windows == nil && t.step == secondsPerHour:
		return "每小时整点"
	case t.windows == nil:
		return every
	}
	parts := make([]string, len(t.windows))
	for i, w := range t.windows {
		parts[i] = clock(w.first, t.seconds) + " 至 " + clock(w.last, t.seconds)
	}
	if len(parts) > 1 {
		return zh.join(parts) + "，" + every + "一次"
	}
	return parts[0] + " " + every + "一次"
}

// factors describes times as seconds of minutes of hours, largest unit first.
func (zh chinese) factors(t *times) string {
	f := &t.factors
	within := "每小时"
	if f.hour != nil {
		within = zh.numbers(f.hour, strconv.Itoa, "时", "")
	}
	if !t.seconds {
		return zh.factor(within, f.minute, f.minuteStep, "分", "分钟")
	}
	switch {
	case oneOf(f.minute) && oneOf(f.second):
		return spaced(within+"的", twoDigits(f.minute[0].first)+" 分 "+twoDigits(f.second[0].first)+" 秒")
	case f.minute != nil:
		within = spaced(within+"的", zh.numbers(f.minute, twoDigits, "分", "分钟"))
	case f.hour == nil:
		within = "每分钟"
	case f.second != nil && f.secondStep == 0:
		within += "内每分钟"
	}
	return zh.factor(within, f.second, f.secondStep, "秒", "秒")
}

// factor formats a set of minutes or seconds after the unit that contains it.
func (zh chinese) factor(within string, values []stretch, step int, unit, length string) string {
	switch {
	case values == nil:
		return within + "内每" + length + "一次"
	case step != 0:
		return within + "内每 " + strconv.Itoa(step) + " " + length + "一次"
	default:
		return spaced(within+"的", zh.numbers(values, twoDigits, unit, length))
	}
}

// weekdays formats days of the week; the month comes before days that are counted in a
// month.
func (zh chinese) weekdays(w *weekdays, month string) string {
	var items []string
	if len(w.every) == 1 && w.every[0] == (stretch{1, 5, 1}) {
		items = append(items, "工作日（周一至周五）")
	} else if w.every != nil {
		items = append(items, "每"+zh.join(eachStretch(w.every, func(n int) string { return chineseWeekdays[n] }, "至", nil)))
	}
	if nth := zh.nthWeekdays(w); len(nth) > 0 {
		items = append(items, month+zh.join(nth))
	}
	return strings.Join(items, "，以及")
}

// nthWeekdays describes the days of the week that are counted in a month.
func (zh chinese) nthWeekdays(w *weekdays) []string {
	var items []string
	for _, d := range w.nth {
		for _, n := range d.numbers {
			items = append(items, chineseNumbers[n]+chineseWeekdays[d.weekday])
		}
	}
	return items
}

// ifThere says that some months lack the day.
func (zh chinese) ifThere(w *weekdays) string {
	switch {
	case !w.hasFifth():
		return ""
	case w.one():
		return "仅限有" + zh.nthWeekdays(w)[0] + "的月份"
	default:
		return "第五个仅限有该日的月份"
	}
}

// condition says that a day of the month must also be a day of the week.
func (zh chinese) condition(d *description) string {
	w := &d.weekdays
	var items []string
	for _, s := range w.every {
		for n := s.first; n <= s.last; n++ {
			items = append(items, chineseWeekdays[n])
		}
	}
	for _, nth := range w.nth {
		for _, n := range nth.numbers {
			items = append(items, "当月"+chineseNumbers[n]+chineseWeekdays[nth.weekday])
		}
	}
	last := len(items) - 1
	if last < 1 {
		return "仅当这一天是" + items[0]
	}
	return "仅当这一天是" + strings.Join(items[:last], "、") + "或" + items[last]
}

// dates describes days of the month.
func (zh chinese) dates(d *monthDays) string {
	var items []string
	switch {
	case d.parity == odd:
		items = append(items, "奇数日")
	case d.parity == even:
		items = append(items, "偶数日")
	case d.days != nil:
		items = eachStretch(d.days, func(n int) string { return strconv.Itoa(n) + " 日" }, "至 ", func(n int) string { return "（每 " + strconv.Itoa(n) + " 天一次）" })
	}
	for _, s := range d.specials {
		items = append(items, zh.monthDay(s))
	}
	return zh.join(items)
}

func (zh chinese) monthDay(d monthDay) string {
	switch {
	case d.kind == plainDay:
		return strconv.Itoa(d.n) + " 日"
	case d.kind == beforeLast && d.n == 0:
		return "最后一天"
	case d.kind == beforeLast:
		return "倒数第 " + strconv.Itoa(d.n+1) + " 天"
	case d.kind == nearBeforeLast && d.n == 0:
		return "最后一个工作日（周一至周五）"
	case d.kind == nearBeforeLast:
		return "离" + zh.monthDay(monthDay{beforeLast, d.n}) + "最近的工作日（周一至周五，不跨月）"
	default:
		return "离 " + strconv.Itoa(d.n) + " 日最近的工作日（周一至周五，不跨月）"
	}
}

// missing names the days that some months lack.
func (zh chinese) missing(d *monthDays) string {
	if len(d.conditional) == 0 {
		return ""
	}
	items := make([]string, len(d.conditional))
	for i, m := range d.conditional {
		items[i] = zh.monthDay(m)
	}
	where := "各自仅限有该日的月份"
	switch {
	case d.leapYears:
		where = "仅限闰年"
	case len(items) == 1 && d.onlyThose:
		where = spaced("仅限有", items[0]) + "的月份"
	case len(items) == 1:
		where = "仅限有该日的月份"
	}
	if d.onlyThose {
		return where
	}
	return zh.join(items) + where
}

// remarks puts remarks into parentheses.
func (chinese) remarks(remarks ...string) string {
	var parts []string
	for _, r := range remarks {
		if r != "" {
			parts = append(parts, r)
		}
	}
	if parts == nil {
		return ""
	}
	return "（" + strings.Join(parts, "，且") + "）"
}

// values formats numbers, each with its unit.
func (zh chinese) values(values []stretch, unit, before, after string) string {
	return zh.join(eachStretch(values, func(n int) string { return strconv.Itoa(n) + unit }, "至 ",
		func(n int) string { return before + strconv.Itoa(n) + after }))
}

// numbers formats numbers with the unit after the last one; length is the unit of a step.
func (zh chinese) numbers(values []stretch, number func(int) string, unit, length string) string {
	text := zh.join(eachStretch(values, number, " 至 ", func(int) string { return "" })) + " " + unit
	if step := values[0].step; step > 1 {
		text += "（每 " + strconv.Itoa(step) + " " + length + "一次）"
	}
	return text
}

func (zh chinese) clocks(times []int, seconds bool) string {
	items := make([]string, len(times))
	for i, t := range times {
		items[i] = clock(t, seconds)
	}
	return zh.join(items)
}

// join formats a list.
func (chinese) join(items []string) string {
	last := len(items) - 1
	if last < 1 {
		return strings.Join(items, "")
	}
	return spaced(spaced(strings.Join(items[:last], "、"), "和"), items[last])
}

func (zh chinese) every(d time.Duration) string {
	if d%time.Second != 0 {
		return "每 " + d.String()
	}
	sizes := sizesOf(int64(d / time.Second))
	if len(sizes) == 1 && sizes[0].n == 1 {
		return "每" + chineseUnits[sizes[0].unit]
	}
	return "每 " + zh.sizes(sizes)
}

func (chinese) sizes(sizes []size) string {
	items := make([]string, len(sizes))
	for i, s := range sizes {
		items[i] = strconv.FormatInt(s.n, 10) + " " + chineseUnits[s.unit]
	}
	return strings.Join(items, " ")
}

func twoDigits(n int) string {
	if n < 10 {
		return "0" + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}

// spaced puts two texts together, with a blank between Chinese and digits.
func spaced(a, b string) string {
	before, _ := utf8.DecodeLastRuneInString(a)
	after, _ := utf8.DecodeRuneInString(b)
	if unicode.Is(unicode.Han, before) && after < utf8.RuneSelf && b != "" ||
		before < utf8.RuneSelf && a != "" && unicode.Is(unicode.Han, after) {
		return a + " " + b
	}
	return a + b
}

func (zh chinese) note(n *note) string {
	text := ""
	switch {
	case n.day:
		text = zh.date(n.times[0]) + "在 " + n.place + " 不存在：" + zh.noteTimes(n, false)
	case n.outcome >= runTwice:
		text = spaced(zh.noteTimes(n, true), "在 "+n.place+" 出现两次：")
	default:
		text = spaced(zh.noteTimes(n, true), "在 "+n.place+" 不存在：")
	}
	return spaced(text, zh.outcome(n))
}

// outcome formats the effect in a note.
func (zh chinese) outcome(n *note) string {
	switch n.outcome {
	case notRun:
		return "不运行"
	case caughtUp:
		switch {
		case n.regular:
			return "并入 " + zh.runs(n) + " 的正常运行，只运行一次"
		case n.count > 1:
			return "合并在 " + zh.runs(n) + " 运行一次"
		default:
			return "改在 " + zh.runs(n) + " 运行"
		}
	case movedLater:
		text := "改在 " + zh.runs(n) + " 运行"
		if n.count > noteTimesMax {
			text = "推迟 " + spaced(zh.sizes(sizesOf(n.length)), "运行")
		}
		if n.regular {
			text += "，与正常时刻重合时只运行一次"
		}
		return text
	case runTwice:
		return "两次都运行"
	case runFirst:
		return "只在第一次运行（" + offsetOf(n.offset) + "）"
	default:
		return "只在最后一次运行（" + offsetOf(n.offset) + "）"
	}
}

// noteTimes formats the times of a note.
func (zh chinese) noteTimes(n *note, dated bool) string {
	items := make([]string, len(n.times))
	for i, c := range n.times {
		items[i] = clock(secondOfDay(c), n.seconds)
		if dated && (i == 0 || !sameDay(c, n.times[i-1])) {
			items[i] = zh.date(c) + " " + items[i]
		}
	}
	if n.count > len(items) {
		return strings.Join(items, "、") + " 等 " + strconv.Itoa(n.count) + " 个时刻"
	}
	return zh.join(items)
}

// runs formats the times at which skipped times run, with the date if it differs.
func (zh chinese) runs(n *note) string {
	items := make([]string, len(n.runs))
	for i, c := range n.runs {
		items[i] = clock(secondOfDay(c), n.seconds)
		before := n.times[0]
		if i > 0 {
			before = n.runs[i-1]
		}
		if !sameDay(c, before) {
			items[i] = zh.date(c) + " " + items[i]
		}
	}
	return zh.join(items)
}

// date formats the day of a civil time.
func (chinese) date(c int64) string {
	d := dateOf(floorDiv(c, secondsPerDay))
	return strconv.Itoa(d.Year) + "年" + strconv.Itoa(int(d.Month)) + "月" + strconv.Itoa(d.Day) + "日"
}

func (chinese) moreNotes(n int) string {
	return "另有 " + strconv.Itoa(n) + " 次时钟变更"
}
