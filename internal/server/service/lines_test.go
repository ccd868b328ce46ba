package service

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// wroteTo writes to the streams of a run in turns, in chunks of their own.
func (b *bench) wroteTo(run client.Run, texts ...string) (list []store.OutputChunk) {
	b.t.Helper()
	capture := b.output.Capture(run.ID, run.Attempt)
	for i, text := range texts {
		if i%2 == 0 {
			fmt.Fprint(capture.Stdout(), text)
		} else {
			fmt.Fprint(capture.Stderr(), text)
		}
	}
	chunks, _ := capture.Close()
	for _, c := range chunks {
		list = append(list, store.OutputChunk(c))
	}
	return list
}

func (b *bench) ran(s *Service, texts ...string) client.Run {
	b.t.Helper()
	outcome, err := s.Runs.Start(b.t.Context(), admin, Name{"default", "a"}, client.RunRequest{}, "")
	if err != nil {
		b.t.Fatal(err)
	}
	b.start(outcome.Run)
	b.finish(outcome.Run, job.OutcomeSucceeded, b.wroteTo(outcome.Run, texts...)...)
	return outcome.Run
}

func inShort(lines client.OutputLines) string {
	list := []string{fmt.Sprintf("of %d:", lines.Total)}
	for _, l := range lines.Items {
		list = append(list, fmt.Sprintf("%d%s %s", l.Line, strings.TrimPrefix(l.Stream, "std"), l.Text))
	}
	return strings.Join(list, " ")
}

func TestLinesOfAnOutput(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "a", "run": {"shell": "true"}}`)
	run := b.ran(s, "one\ntwo\n", "Three\n", "fo", "5\n", "\x1b[31mred\x1b[0m\r\nlast")
	for _, c := range []struct {
		from, count int
		want        string
	}{
		{1, 2, "of 7: 1out one 2out two"},
		{3, 2, "of 7: 3err Three 4out fo"},
		{0, 2, "of 7: 6out \x1b[31mred\x1b[0m 7out last"},
		{8, 2, "of 7:"},
	} {
		lines, err := s.Lines.Read(t.Context(), admin, run.ID, client.LinesQuery{From: c.from, Count: c.count})
		if err != nil {
			t.Fatal(err)
		}
		if got := inShort(lines); got != c.want || lines.Attempt != 1 {
			t.Errorf("from %d the lines are %q, want %q", c.from, got, c.want)
		}
	}
	found, err := s.Lines.Search(t.Context(), admin, run.ID, client.LinesQuery{Attempt: 1, Text: "T", Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := inShort(found), "of 7: 2out two 3err Three"; got != want || found.NextLine != 7 {
		t.Errorf("found are %q and next %d, want %q", got, found.NextLine, want)
	}
	if found, err = s.Lines.Search(t.Context(), admin, run.ID, client.LinesQuery{Attempt: 1, Text: "T", From: found.NextLine, Count: 2}); err != nil || inShort(found) != "of 7: 7out last" || found.NextLine != 0 {
		t.Errorf("then %q and next %d (%v)", inShort(found), found.NextLine, err)
	}
	viewer := Caller{Name: "v", Role: store.RoleViewer, Namespace: "other"}
	if _, err := s.Lines.Read(t.Context(), viewer, run.ID, client.LinesQuery{}); !isType(err, client.TypeNotFound) {
		t.Errorf("of a foreign run the error is %v", err)
	}
	if _, err := s.Lines.Read(t.Context(), admin, run.ID, client.LinesQuery{Attempt: 2}); !isType(err, client.TypeNotFound) {
		t.Errorf("of an attempt that was not the error is %v", err)
	}
}

func TestLongOutputIsReadByLineIndex(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "a", "run": {"shell": "true"}}`)
	const n = 60_000
	var text strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&text, "line %d of some length, so that there are many chunks\n", i)
	}
	run := b.ran(s, text.String())
	last, err := s.Lines.Read(t.Context(), admin, run.ID, client.LinesQuery{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	idx := s.Lines.index(attemptKey{run.ID, 1})
	if len(idx.points) < 3 {
		t.Fatalf("the index has %d points for %d lines", len(idx.points), last.Total)
	}
	for _, from := range []int{1, 2, idx.points[1].lines[0], idx.points[1].lines[0] + 1, last.Total / 2, last.Total} {
		lines, err := s.Lines.Read(t.Context(), admin, run.ID, client.LinesQuery{From: from, Count: 1})
		if err != nil || len(lines.Items) != 1 || lines.Items[0].Place != from || lines.Total != last.Total {
			t.Fatalf("line %d is %+v (%v)", from, lines, err)
		}
		if l, want := lines.Items[0], fmt.Sprintf("line %d ", lines.Items[0].Line); l.Stream != "" && !strings.HasPrefix(l.Text, want) && from != lines.LeftOutLine+1 {
			t.Errorf("line %d is %q", l.Line, l.Text)
		}
		if p := idx.before(0, from); p.lines[0] >= from {
			t.Errorf("line %d is looked for behind line %d", from, p.lines)
		}
	}
}

func TestOverlongLineIsCut(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "a", "run": {"shell": "true"}}`)
	run := b.ran(s, "x"+strings.Repeat("ü", lineMax)+"\n")
	lines, err := s.Lines.Read(t.Context(), admin, run.ID, client.LinesQuery{From: 1, Count: 1})
	if err != nil || len(lines.Items) != 1 {
		t.Fatalf("%+v, %v", lines, err)
	}
	if l := lines.Items[0]; len(l.Text) > lineMax || l.Cut != 2*lineMax+1 || strings.Contains(l.Text, "\uFFFD") {
		t.Errorf("the line has %d bytes and %d are said", len(l.Text), l.Cut)
	}
}

// The lines of one stream have places of their own, also behind an index of many lines, and keep their numbers.
func TestLinesOfAStream(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "a", "run": {"shell": "true"}}`)
	const pairs = 30_000
	var texts []string
	for i := range pairs {
		texts = append(texts, fmt.Sprintf("of stdout, some words to fill chunks, %d\n", i), fmt.Sprintf("of stderr %d\n", i))
	}
	run := b.ran(s, texts...)
	all, err := s.Lines.Read(t.Context(), admin, run.ID, client.LinesQuery{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	if points := len(s.Lines.index(attemptKey{run.ID, 1}).points); points < 3 {
		t.Fatalf("the index has %d points", points)
	}
	gaps := all.Total - 2*pairs // what is left out is said once, and belongs to both
	for _, stream := range []string{"stdout", "stderr"} {
		q := client.LinesQuery{Stream: stream, Count: 2}
		last, err := s.Lines.Read(t.Context(), admin, run.ID, q)
		if err != nil || len(last.Items) != 2 || last.Total <= pairs/2 || last.Total > pairs+max(gaps, 0) || last.Items[1].Place != last.Total {
			t.Fatalf("the last lines of %s are %+v, %v", stream, last, err)
		}
		for _, from := range []int{1, 2, last.Total / 2, last.Total - 10, last.Total} {
			q.From = from
			some, err := s.Lines.Read(t.Context(), admin, run.ID, q)
			if err != nil || some.Items[0].Place != from || some.Items[0].Stream != stream || some.Total != last.Total {
				t.Fatalf("from %d the lines of %s are %+v, %v", from, stream, some, err)
			}
			place := some.Items[0].Line
			if place > some.LeftOutTo && some.LeftOutTo > 0 {
				place -= some.LeftOutTo - some.LeftOutLine
			}
			whole, err := s.Lines.Read(t.Context(), admin, run.ID, client.LinesQuery{From: place, Count: 1})
			if err != nil || whole.Items[0].Text != some.Items[0].Text {
				t.Errorf("line %d of all is %+v, and of %s %+v", some.Items[0].Line, whole.Items, stream, some.Items[0])
			}
		}
		found, err := s.Lines.Search(t.Context(), admin, run.ID, client.LinesQuery{Stream: stream, Text: "OF STD", From: 3, Count: 2})
		if err != nil || len(found.Items) != 2 || found.Items[0].Place != 3 || found.Items[1].Stream != stream || found.NextLine != 5 {
			t.Errorf("found in %s are %+v, %v", stream, found, err)
		}
	}
}

func TestLinesSayWhatIsNotKept(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "a", "run": {"shell": "true"}}`)
	outcome, err := s.Runs.Start(t.Context(), admin, Name{"default", "a"}, client.RunRequest{}, "")
	if err != nil {
		t.Fatal(err)
	}
	b.start(outcome.Run)
	chunks := b.wroteTo(outcome.Run, "one\ntw", "", "last\n")
	last := chunks[len(chunks)-1]
	if len(chunks) == 1 { // both texts are in it: the end is a chunk of its own
		chunks = b.wroteTo(outcome.Run, "one\ntw")
		last = b.wroteTo(outcome.Run, "last\n")[0]
		last.Seq = chunks[0].Seq + 1
	}
	last.Offset = int64(chunks[0].Offset) + int64(chunks[0].Bytes) + 5_000_000
	b.finish(outcome.Run, job.OutcomeSucceeded, chunks[0], last)
	read := func(what string, lines client.OutputLines, err error) {
		t.Helper()
		if err != nil || lines.LeftOut != 5_000_000 || lines.LeftOutLine != 3 {
			t.Errorf("%s: %d bytes are missing at line %d (%v): %s", what, lines.LeftOut, lines.LeftOutLine, err, inShort(lines))
		}
	}
	lines, err := s.Lines.Read(t.Context(), admin, outcome.Run.ID, client.LinesQuery{})
	read("the last lines", lines, err)
	if got := inShort(lines); !strings.HasPrefix(got, "of 4: 1out one 2out tw 3 … ") || !strings.HasSuffix(got, "4out last") {
		t.Errorf("the lines are %s", got)
	}
	lines, err = s.Lines.Search(t.Context(), admin, outcome.Run.ID, client.LinesQuery{Text: "needle"})
	read("a search", lines, err)
}

func TestLinesBehindACutHaveTrueNumbers(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "a", "run": {"shell": "true"}}`)
	var text strings.Builder
	const n = 100_000
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&text, "number %d of the lines, and some more words\n", i)
	}
	run := b.ran(s, text.String())
	isTrue := func(what string, lines client.OutputLines, err error) {
		t.Helper()
		if err != nil || lines.LeftOutLine < 2 || lines.LeftOutTo < n/2 || len(lines.Items) == 0 {
			t.Fatalf("%s: lines %d to %d are missing, %d are there (%v)", what, lines.LeftOutLine, lines.LeftOutTo, len(lines.Items), err)
		}
		for _, l := range lines.Items {
			if l.Stream != "" && l.Line != lines.LeftOutTo+1 && l.Line != lines.LeftOutLine-1 && !strings.HasPrefix(l.Text, fmt.Sprintf("number %d ", l.Line)) {
				t.Errorf("%s: line %d is %q", what, l.Line, l.Text)
			}
		}
	}
	last, err := s.Lines.Read(t.Context(), admin, run.ID, client.LinesQuery{Count: 3})
	isTrue("the last lines", last, err)
	if got := last.Items[2]; got.Line != n || got.Place != last.Total {
		t.Errorf("the last line is %+v of %d", got, last.Total)
	}
	around, err := s.Lines.Read(t.Context(), admin, run.ID, client.LinesQuery{From: last.LeftOutLine - 2, Count: 5})
	isTrue("around the cut", around, err)
	if got, want := around.Items[2], fmt.Sprintf("lines %d to %d are missing", last.LeftOutLine, last.LeftOutTo); got.Line != last.LeftOutLine || !strings.Contains(got.Text, want) {
		t.Errorf("the line of the cut is %+v, not %q", got, want)
	}
	if got := around.Items[3]; got.Line != last.LeftOutTo+1 || got.Place != last.LeftOutLine+1 {
		t.Errorf("behind the cut comes %+v", got)
	}
	found, err := s.Lines.Search(t.Context(), admin, run.ID, client.LinesQuery{Text: "number 99999 "})
	isTrue("a search", found, err)
	if got := found.Items[0].Line; got != 99_999 {
		t.Errorf("found is line %d", got)
	}
	between, err := s.Lines.Read(t.Context(), admin, run.ID, client.LinesQuery{From: last.Total - 5000, Count: 2})
	isTrue("from a point behind the cut", between, err)
}

// comparedInShort writes a comparison as a list: = for lines of both, + and - for lines of one.
func comparedInShort(c client.ComparedOutputs) string {
	list := []string{fmt.Sprintf("+%d -%d:", c.Only, c.Missing)}
	for _, i := range c.Items {
		switch {
		case i.Other == nil:
			list = append(list, fmt.Sprintf("+%d %s", i.Line.Line, i.Line.Text))
		case i.Line == nil:
			list = append(list, fmt.Sprintf("-%d %s", i.Other.Line, i.Other.Text))
		default:
			list = append(list, fmt.Sprintf("=%d/%d", i.Line.Line, i.Other.Line))
		}
	}
	return strings.Join(list, " ")
}

func TestOutputsOfTwoRunsAreCompared(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "a", "run": {"shell": "true"}}`)
	same := "at 10:00:01 begin /tmp/a1\nb\nc\nd\ne\nf\ng\nh\n"
	well := b.ran(s, same+"read 10,000 rows\n-- done\n")
	for _, c := range []struct{ output, want string }{
		{same + "read 12,345 rows\n-- done\n", "+0 -0: =1/1 =2/2 =3/3 =4/4 =5/5 =6/6 =7/7 =8/8 =9/9 =10/10"},
		{"at 11:30:00 begin /tmp/b2\nb\nc\nd\ne\nf\ng\nh\nread no rows\n-- done\n", "+1 -1: =1/1 =2/2 =3/3 =4/4 =5/5 =6/6 =7/7 =8/8 -9 read 10,000 rows +9 read no rows =10/10"},
		{"-- what\n" + same + "read 1 rows\n", "+1 -1: +1 -- what =2/1 =3/2 =4/3 =5/4 =6/5 =7/6 =8/7 =9/8 =10/9 -10 -- done"},
		{"", "+0 -10: -1 at 10:00:01 begin /tmp/a1 -2 b -3 c -4 d -5 e -6 f -7 g -8 h -9 read 10,000 rows -10 -- done"},
	} {
		run := b.ran(s, c.output)
		got, err := s.Lines.Compare(t.Context(), admin, run.ID, client.CompareQuery{With: well.ID})
		if err != nil || comparedInShort(got) != c.want || got.Cut || got.Attempt != 1 || got.WithAttempt != 1 {
			t.Errorf("compared are %q (%+v, %v), want %q", comparedInShort(got), got, err, c.want)
		}
	}
	b.now = b.now.Add(time.Minute)
	bad := b.ran(s, same+"read 5 rows\n")
	if got, err := s.Lines.Compare(t.Context(), admin, bad.ID, client.CompareQuery{}); err != nil || got.With.IsZero() || got.With == bad.ID {
		t.Errorf("by itself it is compared with run %s (%v)", got.With, err)
	}
	if got, err := s.Lines.Compare(t.Context(), admin, well.ID, client.CompareQuery{}); err != nil || !got.With.IsZero() || got.Only != 10 {
		t.Errorf("the first run is compared with %s (%v)", got.With, err)
	}
	long := b.ran(s, strings.Repeat("x\n", 500)+strings.Repeat("é", comparedText)+"\n")
	got, err := s.Lines.Compare(t.Context(), admin, long.ID, client.CompareQuery{With: long.ID, Attempt: 1})
	if last := got.Items[len(got.Items)-1].Line; err != nil || len(got.Items) != comparedMax || !got.Cut || last.Line != 501 || len(last.Text) != comparedText || last.Cut != 2*comparedText {
		t.Errorf("of a long output %d lines are compared, the last is line %d with %d of %d bytes (%v)", len(got.Items), last.Line, len(last.Text), last.Cut, err)
	}
	for _, c := range []client.CompareQuery{{With: job.ID{1}}, {With: well.ID, Attempt: 2}} {
		if _, err := s.Lines.Compare(t.Context(), admin, long.ID, c); err == nil {
			t.Errorf("%+v is compared", c)
		}
	}
}

func TestASearchFindsLinesThatNameAnError(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	b.put(s, `{"name": "a", "run": {"shell": "true"}}`)
	run := b.ran(s, "begin\nan ERROR\nrefused by x\nterror of y\n", "progress\nfailed at y\n")
	found, err := s.Lines.Search(t.Context(), admin, run.ID, client.LinesQuery{Errors: true})
	if got, want := inShort(found), "of 6: 2out an ERROR 3out refused by x 4out terror of y 6err failed at y"; err != nil || got != want {
		t.Errorf("found are %q (%v), want %q", got, err, want)
	}
	found, err = s.Lines.Search(t.Context(), admin, run.ID, client.LinesQuery{Errors: true, Text: " Y"})
	if got, want := inShort(found), "of 6: 4out terror of y 6err failed at y"; err != nil || got != want {
		t.Errorf("with a text found are %q (%v), want %q", got, err, want)
	}
}
