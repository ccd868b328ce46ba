package cron

import (
	"flag"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var updateDescriptions = flag.Bool("update-descriptions", false, "write testdata/describe.txt anew; review every line of the difference")

// The file has three lines for each expression: the expression, with "quartz" in
// front for that dialect, and its English and Chinese descriptions indented.
const descriptionsFile = "testdata/describe.txt"

func TestDescribe(t *testing.T) {
	data, err := os.ReadFile(descriptionsFile)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	described := 0
	for _, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		b.WriteString(line + "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		expr, dialect := line, Default
		if rest, ok := strings.CutPrefix(line, "quartz "); ok {
			expr, dialect = rest, Quartz
		}
		e, err := Parse(expr, WithDialect(dialect))
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("\t" + e.Describe(English) + "\n\t" + e.Describe(Chinese) + "\n")
		described++
	}
	if described < 100 {
		t.Fatalf("%s holds %d expressions, want at least 100", descriptionsFile, described)
	}
	if *updateDescriptions {
		if err := os.WriteFile(descriptionsFile, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, want := strings.Split(b.String(), "\n"), strings.Split(string(data), "\n")
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("%s:%d:\n got %q\nwant %q", descriptionsFile, i+1, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s has %d lines, want %d", descriptionsFile, len(want), len(got))
	}
}

// randomExpression draws from few values, so that many expressions differ in
// little.
func randomExpression(r *rand.Rand) string {
	pick := func(choices ...string) string { return choices[r.IntN(len(choices))] }
	number := func(low, high int) string { return strconv.Itoa(low + r.IntN(high-low+1)) }
	set := func(low, high int) string {
		a, b := low+r.IntN(high-low+1), low+r.IntN(high-low+1)
		a, b = min(a, b), max(a, b)
		switch r.IntN(7) {
		case 0:
			return "*"
		case 1:
			return "*/" + number(1, high/2)
		case 2:
			return fmt.Sprintf("%d-%d", a, b)
		case 3:
			return fmt.Sprintf("%d-%d/%s", a, b, number(1, 8))
		case 4:
			return fmt.Sprintf("%d,%d", a, b)
		case 5:
			return fmt.Sprintf("%d,%d,%s,%s", a, b, number(low, high), number(low, high))
		default:
			return strconv.Itoa(a)
		}
	}
	day := func() string {
		return pick(set(1, 31), set(1, 31), "*", "L", "LW", "L-"+number(0, 30), "L-"+number(0, 30)+"W", number(1, 31)+"W",
			number(1, 31)+","+number(1, 31)+"W,L-"+number(0, 3), number(28, 31)+","+number(28, 31))
	}
	weekday := func() string {
		return pick(set(0, 6), set(0, 6), "*", number(0, 6)+"L", number(0, 6)+"#"+number(1, 5),
			number(0, 6)+","+number(0, 6)+"#"+number(1, 5), number(0, 6)+"#"+number(1, 5)+","+number(0, 6)+"#"+number(1, 5)+","+number(0, 6)+"L")
	}
	return strings.Join([]string{
		pick("0", "0", "0", set(0, 59)),
		pick("0", "0", set(0, 59), set(0, 59)),
		pick("0", "*", set(0, 23), set(0, 23)),
		pick("*", day(), day()),
		pick("*", "*", set(1, 12), "2"),
		pick("*", weekday(), weekday(), "+"+weekday()),
		pick("*", "*", "2027", "2028", "2027,2028", "2027-2030", "2000-2100/"+number(1, 5)),
	}, " ")
}

func TestDifferentExpressionsHaveDifferentDescriptions(t *testing.T) {
	n := light(200_000, 20_000)
	r := newRand(t)
	meanings := [...]map[string]fields{English: {}, Chinese: {}}
	for range n {
		expr := randomExpression(r)
		e, err := Parse(expr)
		if err != nil {
			t.Fatal(err)
		}
		key := e.fields
		key.marks &^= wildcard
		for lang, known := range meanings {
			text := e.Describe(Lang(lang))
			if other, ok := known[text]; ok && other != key {
				t.Fatalf("%q is described as another expression: %q\n%+v\n%+v", expr, text, key, other)
			}
			known[text] = key
		}
	}
	if len(meanings[English]) != len(meanings[Chinese]) {
		t.Fatalf("%d expressions have %d descriptions in English and %d in Chinese", n, len(meanings[English]), len(meanings[Chinese]))
	}
}

// An independent parser of the English times of a day must yield the times of the expression.
func TestEnglishTimesReadBack(t *testing.T) {
	n := light(5_000, 1_000)
	r := newRand(t)
	for range n {
		expr := strings.Join(append(strings.Fields(randomExpression(r))[:3], "*", "*", "*"), " ")
		e, err := Parse(expr)
		if err != nil {
			t.Fatal(err)
		}
		text := e.Describe(English)
		got := slices.Sorted(maps.Keys(readTimes(t, strings.TrimSuffix(text, " every day"))))
		if want := e.clockTimes(); !slices.Equal(got, want) {
			t.Fatalf("%q is described as %q, which are %d times a day, want %d", expr, text, len(got), len(want))
		}
	}
}

// readTimes reads the English for the times of a day.
func readTimes(t *testing.T, text string) map[int]bool {
	t.Helper()
	times := map[int]bool{}
	add := func(first, last, step int) {
		for s := first; s <= last; s += step {
			times[s] = true
		}
	}
	if text == "every hour on the hour" {
		text = "every hour"
	}
	head, windows, windowed := strings.Cut(text, " from ")
	step := 0
	if every, ok := strings.CutPrefix(head, "every "); ok && !strings.Contains(head, " of ") && !strings.Contains(head, " during ") {
		step = readDuration(t, every)
	}
	switch {
	case windowed:
		for _, w := range splitList(windows, " from ") {
			first, last, _ := strings.Cut(strings.TrimPrefix(w, "from "), " through ")
			add(readClock(t, first), readClock(t, last), step)
		}
		return times
	case step != 0:
		add(0, secondsPerDay-1, step)
		return times
	case strings.Contains(text, ":"):
		for _, c := range splitList(strings.TrimPrefix(text, "at "), "") {
			add(readClock(t, c), readClock(t, c), 1)
		}
		return times
	}
	// An unnamed larger unit means each of its values, and an unnamed smaller one its beginning.
	values := map[string][]int{}
	text = strings.ReplaceAll(strings.ReplaceAll(text, " in steps of ", "/"), " during ", " of ")
	finest := ""
	for i, part := range strings.Split(text, " of ") {
		part = strings.TrimPrefix(strings.TrimPrefix(part, "at "), "the ")
		var unit string
		var list []int
		if rest, ok := strings.CutPrefix(part, "every "); ok {
			count, name, counted := strings.Cut(rest, " ")
			by := 1
			if counted {
				by, _ = strconv.Atoi(count)
			} else {
				name = count
			}
			unit = strings.TrimSuffix(name, "s")
			for v := 0; v < map[string]int{"second": 60, "minute": 60, "hour": 24}[unit]; v += by {
				list = append(list, v)
			}
		} else {
			name, numbers, _ := strings.Cut(part, " ")
			unit = strings.TrimSuffix(name, "s")
			for _, item := range splitList(numbers, "") {
				ends, by, stepped := strings.Cut(item, "/")
				first, last, ranged := strings.Cut(ends, " through ")
				if !ranged {
					last = first
				}
				if !stepped {
					by = "1"
				}
				a, _ := strconv.Atoi(first)
				b, _ := strconv.Atoi(last)
				c, _ := strconv.Atoi(by)
				for v := a; v <= b; v += c {
					list = append(list, v)
				}
			}
		}
		if i == 0 {
			finest = unit
		}
		values[unit] = list
	}
	all := func(unit string, n int) []int {
		switch {
		case values[unit] != nil:
			return values[unit]
		case unit == "second" && finest != "second":
			return []int{0}
		}
		list := make([]int, n)
		for i := range list {
			list[i] = i
		}
		return list
	}
	for _, h := range all("hour", 24) {
		for _, m := range all("minute", 60) {
			for _, s := range all("second", 60) {
				times[h*secondsPerHour+m*secondsPerMinute+s] = true
			}
		}
	}
	return times
}

// splitList cuts "a, b and c".
func splitList(text, prefix string) []string {
	text = strings.ReplaceAll(text, " and"+strings.TrimSuffix(prefix, " "), ",")
	text = strings.ReplaceAll(text, " and ", ", ")
	return strings.Split(text, ", ")
}

func readClock(t *testing.T, text string) int {
	t.Helper()
	layout := "15:04"
	if len(text) > len(layout) {
		layout = "15:04:05"
	}
	c, err := time.Parse(layout, text)
	if err != nil {
		t.Fatal(err)
	}
	return c.Hour()*secondsPerHour + c.Minute()*secondsPerMinute + c.Second()
}

func readDuration(t *testing.T, text string) int {
	t.Helper()
	count, unit, counted := strings.Cut(text, " ")
	if !counted {
		count, unit = "1", text
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		t.Fatal(err)
	}
	return n * map[string]int{"second": 1, "minute": secondsPerMinute, "hour": secondsPerHour}[strings.TrimSuffix(unit, "s")]
}

func TestEqualExpressionsHaveEqualDescriptions(t *testing.T) {
	for _, same := range [][]string{
		{"*/5 * * * *", "0-59/5 * * * *", "0/5 * * * *", "0,5,10,15,20,25,30,35,40,45,50,55 * * * *", "0 */5 * * * *"},
		{"0 0 * * 0", "0 0 * * 7", "0 0 * * sun", "@weekly", "0 0 ? * SUN"},
		{"0 0 1-31 * 1", "0 0 1-31 * *", "0 0 * * *"},
		{"0 0 * * 5L", "0 0 * * FRI#L", "0 0 ? * fril"},
	} {
		for _, lang := range []Lang{English, Chinese} {
			want := mustParse(t, same[0]).Describe(lang)
			for _, expr := range same[1:] {
				if got := mustParse(t, expr).Describe(lang); got != want {
					t.Errorf("%q is described as %q, %q as %q", expr, got, same[0], want)
				}
			}
		}
	}
}

func TestDescribeEvery(t *testing.T) {
	for _, c := range []struct {
		every            time.Duration
		english, chinese string
	}{
		{time.Second, "every second", "每秒"},
		{30 * time.Second, "every 30 seconds", "每 30 秒"},
		{90 * time.Second, "every 90 seconds", "每 90 秒"},
		{time.Minute, "every minute", "每分钟"},
		{90 * time.Minute, "every 90 minutes", "每 90 分钟"},
		{150 * time.Minute, "every 2 hours 30 minutes", "每 2 小时 30 分钟"},
		{time.Hour, "every hour", "每小时"},
		{24 * time.Hour, "every 24 hours", "每 24 小时"},
		{168 * time.Hour, "every 168 hours", "每 168 小时"},
		{time.Hour + time.Second, "every 1 hour 1 second", "每 1 小时 1 秒"},
		{1500 * time.Millisecond, "every 1.5s", "每 1.5s"},
	} {
		if got := describeEvery(English, c.every); got != c.english {
			t.Errorf("%s in English: %q, want %q", c.every, got, c.english)
		}
		if got := describeEvery(Chinese, c.every); got != c.chinese {
			t.Errorf("%s in Chinese: %q, want %q", c.every, got, c.chinese)
		}
	}
}

func TestParseLangReadsItsNames(t *testing.T) {
	for _, lang := range []Lang{English, Chinese} {
		if got, err := ParseLang(lang.String()); err != nil || got != lang {
			t.Errorf("ParseLang(%q) = %v, %v", lang, got, err)
		}
	}
	if _, err := ParseLang("de"); err == nil || !strings.Contains(err.Error(), "en, zh") {
		t.Errorf("ParseLang of an unknown name: %v, want an error that names the known ones", err)
	}
}

func ExampleExpression_Describe() {
	e, err := Parse("*/5 8-18 * * 1-5")
	if err != nil {
		panic(err)
	}
	fmt.Println(e.Describe(English))
	fmt.Println(e.Describe(Chinese))
	// Output:
	// every 5 minutes from 08:00 through 18:55, Monday through Friday
	// 工作日（周一至周五）08:00 至 18:55 每 5 分钟一次
}

// mustParse parses a valid expression.
func mustParse(t testing.TB, expr string, opts ...Option) *Expression {
	t.Helper()
	e, err := Parse(expr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// walkedWindows finds windows by walking through the day, second by second.
func walkedWindows(f *fields) (step int, windows []window) {
	first := f.timeFrom(0)
	step = f.timeAfter(first) - first
	if step >= secondsPerMinute && step%secondsPerMinute != 0 || step >= secondsPerHour && step%secondsPerHour != 0 {
		return 0, nil
	}
	for first >= 0 {
		last, next := first, f.timeAfter(first)
		for next == last+step {
			last, next = next, f.timeAfter(next)
		}
		if last == first || len(windows) == windowsMax {
			return 0, nil
		}
		windows = append(windows, window{first, last})
		first = next
	}
	return step, windows
}

func TestWindowsMatchAWalkThroughTheDay(t *testing.T) {
	random := newRand(t)
	// A set consists of some progressions, which form windows.
	set := func(length int) (set uint64) {
		for range 1 + random.IntN(2) {
			first := random.IntN(length)
			set |= progression(first, first+random.IntN(length-first), []int{1, 2, 5, 10, 15, length / 2, length}[random.IntN(7)])
		}
		if random.IntN(3) == 0 {
			set = 1 << (random.IntN(2) * random.IntN(length))
		}
		return set
	}
	found := 0
	for range 3000 {
		f := &fields{second: set(60), minute: set(60), hour: uint32(set(24))}
		if bits.OnesCount64(f.second)*bits.OnesCount64(f.minute)*bits.OnesCount32(f.hour) < 2 {
			continue
		}
		step, windows := f.windows()
		wantStep, want := walkedWindows(f)
		if step != wantStep || !slices.Equal(windows, want) {
			t.Fatalf("second %x minute %x hour %x: step %d in %v, want %d in %v", f.second, f.minute, f.hour, step, windows, wantStep, want)
		}
		if step != 0 {
			found++
		}
	}
	if found < 100 {
		t.Errorf("only %d sets have windows: the test tests little", found)
	}
}

func BenchmarkDescribeEverySecond(b *testing.B) {
	e, err := Parse("* * * * * *")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_ = e.Describe(English)
	}
}
