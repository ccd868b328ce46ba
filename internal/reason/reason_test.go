package reason

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/job"
)

// Each code has texts in both languages with the same arguments, and advice.
func TestEveryCodeIsSaidInBothLanguages(t *testing.T) {
	for _, c := range All() {
		if len(c.Args) != len(c.kinds) {
			t.Errorf("%s has the arguments %v, and its constructor takes %d", c.Name, c.Args, len(c.kinds))
			continue
		}
		en, zh := slices.Sorted(slices.Values(c.Args)), slices.Sorted(slices.Values(phrase.Names(c.Chinese)))
		if !slices.Equal(en, zh) {
			t.Errorf("%s has the arguments %v, and in Chinese %v", c.Name, en, zh)
		}
		for text, of := range map[string]string{c.Chinese: "Chinese words", c.DoInChinese: "Chinese advice"} {
			if c.Name != job.ReasonText && len(phrase.Names(c.English)) < len(strings.Fields(c.English)) && !isHan(text) {
				t.Errorf("%s has no %s: %q", c.Name, of, text)
			}
		}
		if c.Do == "" || c.English == "" {
			t.Errorf("%s has no words, or no advice", c.Name)
		}
	}
	for _, c := range phrase.All() {
		if byName[c.Name] != nil && c.Name != job.ReasonText {
			t.Errorf("%s is a code of package phrase too", c.Name)
		}
	}
	if len(byName) != len(catalogue) {
		t.Errorf("%d of %d codes have a name of their own", len(byName), len(catalogue))
	}
}

// isHan reports whether a text has Chinese words.
func isHan(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}

// A code that no package uses is dead.
func TestEveryCodeIsUsed(t *testing.T) {
	declared := map[string]bool{}
	file, err := parser.ParseFile(token.NewFileSet(), "catalogue.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, s := range g.Specs {
				if name := s.(*ast.ValueSpec).Names[0]; name.IsExported() {
					declared[name.Name] = true
				}
			}
		}
	}
	if len(declared) < 100 {
		t.Fatalf("found %d codes", len(declared))
	}
	err = filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "catalogue.go" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if of, ok := n.X.(*ast.Ident); ok && of.Name == "reason" {
					delete(declared, n.Sel.Name)
				}
			case *ast.Ident:
				if file.Name.Name == "reason" {
					delete(declared, n.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range declared {
		t.Errorf("no package uses reason.%s", name)
	}
}

// sample returns a reason of a code with suitable arguments.
func sample(c *Code) job.Reason {
	values := make([]any, len(c.kinds))
	for i, kind := range c.kinds {
		switch kind {
		case reflect.TypeFor[string]():
			values[i] = c.Args[i] + " <&>"
		case reflect.TypeFor[Words]():
			values[i] = Words("said \"{so}\" [x]")
		case reflect.TypeFor[int]():
			values[i] = 2
		case reflect.TypeFor[time.Duration]():
			values[i] = 90*time.Second + 5*time.Millisecond
		case reflect.TypeFor[time.Time]():
			values[i] = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
		case reflect.TypeFor[job.ID]():
			values[i] = job.ID{7}
		case reflect.TypeFor[job.Outcome]():
			values[i] = job.OutcomeTimedOut
		case reflect.TypeFor[job.Reason]():
			values[i] = ExitStatus.Of(3)
		case reflect.TypeFor[[]string]():
			values[i] = []string{"a", "b"}
		}
	}
	return c.of(values...)
}

// A stored and decoded reason is equal, and its arguments yield the same text.
func TestReasonsSurviveTheirStoredForm(t *testing.T) {
	for _, c := range All() {
		r := sample(c)
		got := job.StoredReason(r.Stored())
		if got != r || !c.Is(got) {
			t.Errorf("%s is read as %q", c.Name, got.Stored())
		}
		if text := In(English, got, nil); text != r.String() || text == "" {
			t.Errorf("%s is said as %q, made as %q", c.Name, text, r)
		}
		if again := job.ReasonOf(r.String(), r.Code(), r.Args()); again != r {
			t.Errorf("%s of its parts is %q, want %q", c.Name, again.Stored(), r.Stored())
		}
		if c.Name != job.ReasonText && In(Chinese, got, nil) == In(English, got, nil) && c != FieldFailed.Code && c != Because.Code && c != Both.Code && c != RequestFailed.Code {
			t.Errorf("%s is English in Chinese: %s", c.Name, In(Chinese, got, nil))
		}
	}
}

func TestReasonsAreSaidInTheLanguageAndZoneOfTheReader(t *testing.T) {
	at := func(t time.Time) string { return t.In(time.FixedZone("", 3600)).Format("15:04") }
	ten := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	run, text := job.ID{1}, job.Text
	id := run.String()
	var none job.Reason
	for _, c := range []struct {
		r      job.Reason
		en, zh string
	}{
		{none, "", ""},
		{text("ERROR 2002 (HY000): Can't connect"), "ERROR 2002 (HY000): Can't connect", "ERROR 2002 (HY000): Can't connect"},
		{ExitStatus.Of(0), "exit status 0", "退出码 0"},
		{NotRetried.Of(ExitStatus.Of(1), CancelledBefore.Of("ann")), "exit status 1; not retried: it was cancelled by ann", "退出码 1；不再重试：已由 ann 取消"},
		{Cancelled.Of("wei", text("the disk is full")), "cancelled by wei: the disk is full", "由 wei 取消：the disk is full"},
		{Cancelled.Of("wei", none), "cancelled by wei", "由 wei 取消"},
		{JobDeleted.Of(""), "the job was deleted", "任务已删除"},
		{PausedByFailure.Of(1, run), "1 run failed in a row, the last was " + id, "连续 1 次运行失败，最近一次为 " + id},
		{PausedByFailure.Of(2, run), "2 runs failed in a row, the last was " + id, "连续 2 次运行失败，最近一次为 " + id},
		{NodeSilent.Of("ber-1", 5*time.Minute), "node ber-1 was silent for 5 min", "节点 ber-1 失联 5 分钟"},
		{StillRunning.Of(run, ten, "b"), "run " + id + " of 11:00 was still running on node b", "11:00 的运行 " + id + " 仍在节点 b 上运行"},
		{MissedLatest.Of(NoNodeThere.Of(ten, ten.Add(time.Hour))), "no node was running from 11:00 to 12:00, and the missed policy is latest: a later one runs", "11:00 至 12:00 没有节点在运行，且错过策略为 latest：运行较晚的一次"},
		{NoNodeHas.Of(Wants(&job.Place{Labels: map[string]string{"disk": "ssd", "gpu": "a100"}}, "bake")), "no live node has the labels disk=ssd, gpu=a100 and the handler bake", "没有在线节点具备标签 disk=ssd、gpu=a100及处理器 bake"},
		{Attempted.Of(1, job.OutcomeTimedOut, TimeoutPassed.Of()), "attempt 1 timed out: the timeout has passed", "第 1 次尝试超时：已超时"},
		{Timeout.Of(0), "it took longer than its timeout", "耗时超过超时设置"},
		{Because.Of(text("a name with {who} in it"), ExitStatus.Of(1)), "a name with {who} in it: exit status 1", "a name with {who} in it：退出码 1"},
	} {
		if en, zh := In(English, c.r, at), In(Chinese, c.r, at); en != c.en || zh != c.zh {
			t.Errorf("%q is said as %q and %q, want %q and %q", c.r.Stored(), en, zh, c.en, c.zh)
		}
	}
}

// A metric has the most telling code.
func TestLabelsNameWhatOtherReasonsAddTo(t *testing.T) {
	for _, c := range []struct {
		r    job.Reason
		want string
	}{
		{NotRetried.Of(ExitStatus.Of(1), CancelledBefore.Of("ann")), "exit_status"},
		{Attempted.Of(2, job.OutcomeFailed, Both.Of(ExitStatus.Of(1), job.Text("and more"))), "exit_status"},
		{Because.Of(job.Text("the script"), TimeoutPassed.Of()), "timeout_passed"},
		{Cancelled.Of("wei", job.Text("the disk is full")), "cancelled"},
		{job.Text("said"), "text"},
		{job.ReasonOf("it is new", "new_code", nil), Unlisted},
	} {
		if got := Label(c.r); got != c.want {
			t.Errorf("%q has the label %s, want %s", c.r, got, c.want)
		}
	}
}

// A text of package phrase is in the reader's language, alone and within a reason.
func TestTextsAreSaidAsReasons(t *testing.T) {
	r := Because.Of(job.Text("a"), Say(phrase.NotName.Of("B c")))
	r = job.StoredReason(r.Stored())
	if en, zh := In(English, r, nil), In(Chinese, r, nil); en != `a: "B c" is not a name` || zh != `a："B c" 不是有效名称` {
		t.Errorf("it is said as %q and %q", en, zh)
	}
	if !First(nil).IsZero() {
		t.Error("no text is a reason")
	}
}

// A reason of another version stays readable.
func TestUnknownReasonsStayInEnglish(t *testing.T) {
	for _, r := range []job.Reason{
		job.ReasonOf("it is new", "new_code", map[string]any{"x": "y"}),
		job.ReasonOf("it is new", ExitStatus.Name, map[string]any{"status": "three"}),
	} {
		if got := In(Chinese, r, nil); got != "it is new" {
			t.Errorf("%q is said as %q", r.Stored(), got)
		}
	}
	if r := job.StoredReason("exit status 3"); r.Code() != job.ReasonText || r.String() != "exit status 3" || r != job.Text("exit status 3") {
		t.Errorf("what earlier versions have stored has the code %q", r.Code())
	}
}

// No part of a reason keeps a secret.
func TestMaskedReasonsHaveNoSecret(t *testing.T) {
	r := Because.Of(Cancelled.Of("hush", job.Text("hush")), StepsFailed.Of([]string{"a", "hush"}))
	masked := r.Map(func(text string) string { return strings.ReplaceAll(text, "hush", "***") })
	if strings.Contains(masked.Stored(), "hush") || masked.String() != "cancelled by ***: ***: steps a, *** have failed" || !Because.Is(masked) {
		t.Errorf("masked it is %q", masked.Stored())
	}
}
