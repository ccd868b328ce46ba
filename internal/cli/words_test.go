package cli

import (
	"bytes"
	"runtime/debug"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/cron"
)

func TestCountdownNamesTheTwoGreatestUnits(t *testing.T) {
	tests := []struct {
		distance         time.Duration
		english, chinese string
	}{
		{0, "in 0s", "0秒后"},
		{400 * time.Millisecond, "in 0s", "0秒后"},
		{59 * time.Second, "in 59s", "59秒后"},
		{time.Minute, "in 1m", "1分后"},
		{61 * time.Second, "in 1m 1s", "1分1秒后"},
		{3*time.Hour + 12*time.Minute + 59*time.Second, "in 3h 12m", "3小时12分后"},
		{3*time.Hour + 59*time.Second, "in 3h", "3小时后"},
		{24 * time.Hour, "in 1d", "1天后"},
		{8*365*24*time.Hour + 5*time.Hour, "in 2920d 5h", "2920天5小时后"},
		{-90 * time.Minute, "1h 30m ago", "1小时30分前"},
	}
	now := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	for _, tt := range tests {
		if got := countdown(now.Add(tt.distance), now, cron.English); got != tt.english {
			t.Errorf("%v away is %q, want %q", tt.distance, got, tt.english)
		}
		if got := countdown(now.Add(tt.distance), now, cron.Chinese); got != tt.chinese {
			t.Errorf("%v away is %q in Chinese, want %q", tt.distance, got, tt.chinese)
		}
	}
}

func TestUnderlineCountsColumnsAndNotBytes(t *testing.T) {
	tests := []struct {
		name        string
		text        string
		at, length  int
		line, caret string
	}{
		{"plain", "61 * * * *", 0, 2, "61 * * * *", "^^"},
		{"later", "0 9 * * FIR", 8, 3, "0 9 * * FIR", "        ^^^"},
		{"something missing at the end", "0 9 * *", 7, 0, "0 9 * *", "       ^"},
		{"behind letters of several bytes", "ä é x", 6, 1, "ä é x", "    ^"},
		{"behind wide characters", "周一 x", 7, 1, "周一 x", "     ^"},
		{"what a terminal would obey", "\x1b[2J x", 5, 1, "\uFFFD[2J x", "     ^"},
		{"a tab", "0\tx", 2, 1, "0 x", "  ^"},
		{"a place beyond the end", "0", 9, 9, "0", " ^"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			line, caret := underline(tt.text, tt.at, tt.length)
			if line != tt.line || caret != tt.caret {
				t.Errorf("got\n%q\n%q\nwant\n%q\n%q", line, caret, tt.line, tt.caret)
			}
		})
	}
}

func TestVersionShowsTheBuild(t *testing.T) {
	info := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123abc"}
	changed := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	tests := []struct {
		name              string
		info              *debug.BuildInfo
		version, revision string
	}{
		{"a release", info("v1.2.3", revision), "v1.2.3", "0123abc"},
		{"a changed checkout", info("(devel)", revision, changed), "development", "0123abc, changed"},
		{"a build without version control", info("(devel)"), "development", ""},
		{"a build that wrote down nothing", nil, "unknown", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := versionOf(tt.info)
			if v.Version != tt.version || v.Revision != tt.revision {
				t.Errorf("version %q, revision %q; want %q, %q", v.Version, v.Revision, tt.version, tt.revision)
			}
		})
	}
}

func TestTerminalsAreShownTextAndColoursAlone(t *testing.T) {
	tests := []struct{ name, written, shown string }{
		{"text", "a\tb\nc", "a\tb\nc"},
		{"colours", "\x1b[31mred\x1b[0m \x1b[38;5;9mx\x1b[m", "\x1b[31mred\x1b[0m \x1b[38;5;9mx\x1b[m"},
		{"the title of the window", "a\x1b]0;gotcha\x07b", "ab"},
		{"a title that ends otherwise", "a\x1b]0;gotcha\x1b\\b", "ab"},
		{"a title without an end is over with its line", "a\x1b]0;gotcha\nb", "ab"},
		{"moving the cursor", "a\x1b[2J\x1b[1;1Hb", "ab"},
		{"what keys send", "a\x1b[>4;2mb", "ab"},
		{"writing over a line", "good\rbad\r\nnext", "good\nbad\nnext"},
		{"bells and backspaces", "a\x07\x08b\x7f", "ab"},
		{"controls of eight bits", "a\u009b31mb", "a31mb"},
		{"letters of several bytes", "zwölf 周", "zwölf 周"},
		{"marks that turn the direction", "a\u202eb\u2066c\u200fd\u061c", "a<U+202E>b<U+2066>c<U+200F>d<U+061C>"},
		{"a family of four, joined", "👨\u200d👩", "👨\u200d👩"},
		{"broken letters", "a\xffb\xe5\x91c", "a\ufffdb\ufffdc"},
		{"a sequence without an end", "a\x1b[3111111111111111111111111111111111111111111111111111111111111111111111mb", "a1111111mb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, step := range []int{1, 2, 1000} {
				var b bytes.Buffer
				w := &safeWriter{w: &b}
				for rest := []byte(tt.written); len(rest) > 0; rest = rest[min(step, len(rest)):] {
					if _, err := w.Write(rest[:min(step, len(rest))]); err != nil {
						t.Fatal(err)
					}
				}
				if b.String() != tt.shown {
					t.Errorf("in steps of %d: %q is shown as %q, want %q", step, tt.written, b.String(), tt.shown)
				}
			}
		})
	}
}
