package i18n

import (
	"slices"
	"testing"
	"time"
	"unicode"
)

func TestReasonsAreTranslated(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"exit status 1", "退出码 1"},
		{"exit status 1; not retried: it was cancelled by ann", "退出码 1；不再重试：已由 ann 取消"},
		{"cancelled by wei: the disk is full", "由 wei 取消：the disk is full"},
		{"the job was rescheduled 2 times after the run was planned, the last time because calendar default/off was changed by bob", "计划该运行后，任务重新调度了 2 次，最近一次是因为日历 default/off 被 bob 修改"},
		{"no live node has the labels disk=ssd, gpu=a100 and the handler bake", "没有在线节点具备标签 disk=ssd, gpu=a100 及处理器 bake"},
		{"run 01M8 of 2026-11-20T10:00:00Z was still running on node ber-1, and 3 runs wait already", "2026-11-20T10:00:00Z 的运行 01M8 仍在节点 ber-1 上运行，且已有 3 次运行在等待"},
		{"the last 4 runs failed; the latest failed: exit status 3", "最近 4 次运行失败；最近一次失败：退出码 3"},
		{"attempt 1 failed: exit status 1", "第 1 次尝试失败：退出码 1"},
		{"it could start until 2026-11-20T10:00:00Z: no live node has the label gpu=a100", "最迟应在 2026-11-20T10:00:00Z 启动：没有在线节点具备标签 gpu=a100"},
		{"node ber-1 was silent for 1 h 30 min 5 s", "节点 ber-1 失联 1 小时 30 分钟 5 秒"},
		{"node ber-1 was silent for 1m30s", "节点 ber-1 失联 1m30s"}, // as records of earlier versions say it
		{"attempt 2 took 12.5 s, expected was less than 250 ms", "第 2 次尝试耗时 12.5 秒，预期少于 250 毫秒"},
		{"it has not started 5 min after it was due; it has not ended 1 d after it was due", "到期 5 分钟后仍未启动；到期 1 天后仍未结束"},
		{"SIGTERM after 10 min, SIGKILL 10 s later", "10 分钟后发送 SIGTERM，再过 10 秒发送 SIGKILL"},
		{"cancelled by ann: SIGTERM after 1.5 s, exit status 3 200 ms later", "由 ann 取消：1.5 秒后发送 SIGTERM，再过 200 毫秒以 3 退出"},
		{"it took longer than its timeout, 2 h", "耗时超过超时设置（2 小时）"},
		{"exit status 1: 5 min", "退出码 1：5 min"}, // a program has said so
		{"ERROR 2002 (HY000): Can't connect", "ERROR 2002 (HY000): Can't connect"},
		{"a name with {who} in it: exit status 1", "a name with {who} in it: exit status 1"},
	} {
		if got := Chinese.Reason(c.text, nil); got != c.want {
			t.Errorf("%q is %q, want %q", c.text, got, c.want)
		}
		if got := English.Reason(c.text, nil); got != c.text {
			t.Errorf("in English %q is %q", c.text, got)
		}
	}
}

func TestMomentsOfReasonsAreThoseOfTheReader(t *testing.T) {
	at := func(t time.Time) string { return t.In(time.FixedZone("", 3600)).Format("15:04") }
	for _, c := range []struct{ text, en, zh string }{
		{"its start was reported at 2026-11-20T10:00:00Z", "its start was reported at 11:00", "于 11:00 报告启动"},
		{
			"exit status 1; not retried: run 01M8 of 2026-11-20T10:00:00.5Z was still running", "exit status 1; not retried: run 01M8 of 11:00 was still running",
			"退出码 1；不再重试：11:00 的运行 01M8 仍在运行",
		},
		{"at 2026-11-20T10:00:00Z all was well", "at 2026-11-20T10:00:00Z all was well", "at 2026-11-20T10:00:00Z all was well"}, // a program has said so
	} {
		if en, zh := English.Reason(c.text, at), Chinese.Reason(c.text, at); en != c.en || zh != c.zh {
			t.Errorf("%q is %q and %q", c.text, en, zh)
		}
	}
}

// Each pattern has the same values in both languages, and words in Chinese.
func TestReasonsHaveTheSameValues(t *testing.T) {
	names := func(text string) (list []string) {
		for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
			list = append(list, m[1])
		}
		slices.Sort(list)
		return list
	}
	for _, r := range slices.Concat(reasons, notes, hints, problems) {
		if en, zh := names(r.en), names(r.zh); !slices.Equal(en, zh) {
			t.Errorf("%q has the values %v, and in Chinese %v", r.en, en, zh)
		}
		if !slices.ContainsFunc([]rune(r.zh), func(c rune) bool { return unicode.Is(unicode.Han, c) }) {
			t.Errorf("%q has no Chinese words: %q", r.en, r.zh)
		}
	}
}
