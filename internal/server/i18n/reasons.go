package i18n

import (
	"regexp"
	"strings"
	"time"
)

// reasons are what the engine and the executors write as the reason of a run, with its words in
// Chinese. {x} is a value that stays as it is, {x*} one that is translated in turn. The first
// pattern that fits counts, so what is special stands before what is general. {d} and {most} are
// durations, whose units are translated.
var reasons = []translation{
	{"{a*}; not retried: {b*}", "{a*}；不再重试：{b*}"},
	{"the last {n} runs failed; the latest {a*}", "最近 {n} 次运行失败；最近一次{a*}"},
	{"the last run {a*}", "最近一次运行{a*}"},
	{"attempt {n} could not start within {d} of the first; {a*}", "第 {n} 次尝试未能在首次尝试后 {d}内启动；{a*}"},
	{"attempt {n} took {d}, expected was less than {most}", "第 {n} 次尝试耗时 {d}，预期少于 {most}"},
	{"it has not started {d} after it was due; {a*}", "到期 {d}后仍未启动；{a*}"},
	{"it has not started {d} after it was due", "到期 {d}后仍未启动"},
	{"it did not start within {d} of its due time; {a*}", "未在到期后 {d}内启动；{a*}"},
	{"it did not start within {d} of its due time", "未在到期后 {d}内启动"},
	{"it has not ended {d} after it was due; {a*}", "到期 {d}后仍未结束；{a*}"},
	{"it has not ended {d} after it was due", "到期 {d}后仍未结束"},
	{"it started {d} after it was due, expected was {most} at most; {a*}", "到期 {d}后才启动，预期最多 {most}；{a*}"},
	{"it started {d} after it was due, expected was {most} at most", "到期 {d}后才启动，预期最多 {most}"},
	{"it ended {d} after it was due, expected was {most} at most; {a*}", "到期 {d}后才结束，预期最多 {most}；{a*}"},
	{"it ended {d} after it was due, expected was {most} at most", "到期 {d}后才结束，预期最多 {most}"},
	{"attempt {n} has not ended {d} after it started", "第 {n} 次尝试启动 {d}后仍未结束"},
	{"attempt {n} {o*}: {a*}", "第 {n} 次尝试{o*}：{a*}"},
	{"cancelled by {who}: {why}: {a*}", "由 {who} 取消：{why}：{a*}"},
	{"cancelled by {who}: {a*}", "由 {who} 取消：{a*}"},
	{"cancelled by {who}", "由 {who} 取消"},
	{"cancelled: {a*}", "已取消：{a*}"},
	{"it was cancelled by {who}", "已由 {who} 取消"},
	{"the job was deleted by {who}", "任务已被 {who} 删除"},
	{"the job was deleted", "任务已被删除"},
	{"the job was paused and resumed by {who}", "任务曾被 {who} 暂停并恢复"},
	{"the job was paused and resumed", "任务曾被暂停并恢复"},
	{"the job was paused by {who}: {why}", "任务被 {who} 暂停：{why}"},
	{"the job was paused by {who}", "任务被 {who} 暂停"},
	{"the job was paused: {why}", "任务已暂停：{why}"},
	{"the job was paused", "任务已暂停"},
	{"the schedule of the job was changed by {who}", "任务的调度计划被 {who} 修改"},
	{"the schedule of the job was changed", "任务的调度计划被修改"},
	{"the job was rescheduled after the run was planned", "计划该运行后，任务重新调度"},
	{"the job was rescheduled {n} times after the run was planned, the last time because {a*}", "计划该运行后，任务重新调度了 {n} 次，最近一次是因为{a*}"},
	{"the store was restored from a backup", "存储已从备份恢复"},
	{"calendar {c} was changed by {who}", "日历 {c} 被 {who} 修改"},
	{"calendar {c} was changed", "日历 {c} 被修改"},
	{"the defaults of the server were changed", "服务器的默认值已更改"},
	{"the default time zone of the server was changed from {a} to {b}", "服务器的默认时区由 {a} 改为 {b}"},
	{"it could start until {t}: {a*}", "最迟应在 {t} 启动：{a*}"},
	{"{a*}, and it may start at most {d} late", "{a*}，且最多可延迟 {d}启动"},
	{"no node was running from {a} to {b}", "{a} 至 {b} 没有节点在运行"},
	{"no node planned it in time", "没有节点及时计划该运行"},
	{"no node could run it in time", "没有节点能及时运行"},
	{"no node has claimed it yet", "尚无节点认领"},
	{"xxl.short_tokens accepts an access token of executors that can be guessed: give them one of 16 characters or more, list both in xxl.tokens, and remove the short one once all executors have the new one", "xxl.short_tokens 放行了可被猜出的执行器令牌：请为执行器换成 16 个字符以上的令牌，在 xxl.tokens 中同时列出两者，全部换完后再删除短令牌"},
	{"no live node runs jobs", "没有在线节点运行任务"},
	{"no live node runs commands or requests: the live ones are programs that run their own handlers", "没有在线节点能执行命令或请求：在线的都是只运行自身处理器的程序"},
	{"no live node has {w*}", "没有在线节点具备{w*}"},
	{"step {s}: no node may run {a*}", "步骤 {s}：没有节点可以运行{a*}"},
	{"no node may run it: it needs sh, and node {n} has none in shell.path", "没有节点可以运行：需要 sh，而节点 {n} 的 shell.path 中没有 sh"},
	{"no node may run it without run.user: name a user in run.user, or start node {n} with --run-as", "没有 run.user 时没有节点可以运行：请在 run.user 中指定用户，或用 --run-as 启动节点 {n}"},
	{"no node may run as {u}: node {n} runs as {s} and cannot switch users; run it as root with --run-as {r}, or leave run.user out", "没有节点可以以 {u} 身份运行：节点 {n} 以 {s} 身份运行，不能切换用户；请以 root 并用 --run-as {r} 运行它，或不填 run.user"},
	{"no node may run as {u}: node {n} has no such user", "没有节点可以以 {u} 身份运行：节点 {n} 没有该用户"},
	{"no node may run as {u}: start node {n} with --config and a file that has {w}", "没有节点可以以 {u} 身份运行：请用 --config 启动节点 {n}，并在该文件中设置 {w}"},
	{"no node may run as {u}: set {w} in {f} on node {n}, then {c}", "没有节点可以以 {u} 身份运行：请在节点 {n} 的 {f} 中设置 {w}，然后执行 {c}"},
	{"node {n} has not {w*}", "节点 {n} 不具备{w*}"},
	{"node {n} runs as many attempts as it may: {c}", "节点 {n} 已达并发上限：{c}"},
	{"it belongs to its node, and {a*}", "它属于其节点，而{a*}"},
	{"it belongs to node {n}, which is not live", "它属于节点 {n}，而该节点不在线"},
	{"node {n} was drained by {who}: {why}", "节点 {n} 被 {who} 排空：{why}"},
	{"node {n} was drained by {who}", "节点 {n} 被 {who} 排空"},
	{"node {n} was started again before it reported the result", "节点 {n} 在报告结果之前重新启动"},
	{"node {n} has ended its session", "节点 {n} 已结束会话"},
	{"node {n} was silent for {d}", "节点 {n} 失联 {d}"},
	{"node {n} ended before it reported the result", "节点 {n} 在报告结果之前退出"},
	{"the node is no longer heard of, and had {n} running attempts", "节点失联，失联时有 {n} 个正在进行的尝试"},
	{"the node is no longer heard of", "节点失联"},
	{"the clock of the node is {d} ahead, so it plans and claims nothing", "节点时钟快了 {d}，因此不计划也不认领运行"},
	{"the clock of the node is {d} behind, so it plans and claims nothing", "节点时钟慢了 {d}，因此不计划也不认领运行"},
	{"has been running for {d}; the longest of the last {n} that succeeded took {most}", "已运行 {d}；最近 {n} 次成功运行中最长的耗时 {most}"},
	{"step {s} waits for a person: {why}", "步骤 {s} 等待人工处理：{why}"},
	{"{a*}, and {n} run waits already", "{a*}，且已有 {n} 次运行在等待"},
	{"{a*}, and {n} runs wait already", "{a*}，且已有 {n} 次运行在等待"},
	{"run {r} of {t} took its place", "{t} 的运行 {r} 取代了它"},
	{"run {r} of {t} had waited longer for its slot", "{t} 的运行 {r} 等待该槽位更久"},
	{"run {r} of {t} is waiting: {a*}", "{t} 的运行 {r} 正在等待：{a*}"},
	{"its secrets cannot be read: {why}", "无法读取其机密：{why}"},
	{"this server has not the key of the secret {s}: belfry doctor says what to do", "此服务器没有机密 {s} 的密钥：belfry doctor 会说明如何处理"},
	{"run {r} of {t} holds its slot until its next attempt", "{t} 的运行 {r} 占用槽位直至下一次尝试"},
	{"run {r} of {t} was about to start on node {n}", "{t} 的运行 {r} 即将在节点 {n} 上启动"},
	{"run {r} of {t} was about to start", "{t} 的运行 {r} 即将启动"},
	{"run {r} of {t} was running on node {n} when this run was claimed, {d} after it was due", "认领时（到期后 {d}），{t} 的运行 {r} 正在节点 {n} 上运行"},
	{"run {r} of {t} had not reported its end: {a*}", "{t} 的运行 {r} 尚未报告结束：{a*}"},
	{"node {n} was last heard {d} ago", "节点 {n} 最后一次在线是 {d}前"},
	{"run {r} of {t} was still running on node {n}", "{t} 的运行 {r} 仍在节点 {n} 上运行"},
	{"run {r} of {t} was still running", "{t} 的运行 {r} 仍在运行"},
	{"run {r} of {t} is being cancelled on node {n}", "{t} 的运行 {r} 正在节点 {n} 上取消"},
	{"run {r} of {t} is being cancelled", "{t} 的运行 {r} 正在取消"},
	{"run {r} of {t} has not ended", "{t} 的运行 {r} 尚未结束"},
	{"the occurrence of {t} has not succeeded", "{t} 那一次未成功"},
	{"the next attempt would start more than {d} after the first", "下一次尝试将晚于首次尝试超过 {d}"},
	{"{n} runs failed in a row, the last was {r}", "连续 {n} 次运行失败，最近一次为 {r}"},
	{"{n} run failed in a row, the last was {r}", "连续 {n} 次运行失败，最近一次为 {r}"},
	{"it failed without giving a reason", "失败且未说明原因"},
	{"it took longer than its timeout of {d}, and the executor did not end it", "耗时超过超时设置（{d}），且执行器未结束它"},
	{"it took longer than its timeout, {d}", "耗时超过超时设置（{d}）"},
	{"it took longer than its timeout", "耗时超过超时设置"},
	{"its node does not know its outcome", "其节点不知道结果"},
	{"it ended in success", "成功结束"},
	{"no report came until {t}, {d} after it was due", "到 {t}（到期后 {d}）仍未收到报告"},
	{"its start was reported at {t}, and no end until {e}", "于 {t} 报告启动，到 {e} 仍未报告结束"},
	{"its start was reported at {t}", "于 {t} 报告启动"},
	{"the time has come", "时间已到"},
	{"nothing has come within {d}", "{d}内没有到达"},
	{"nothing has come yet", "尚未到达"},
	{"approved by {who}: {why}", "由 {who} 批准：{why}"},
	{"approved by {who}", "由 {who} 批准"},
	{"rejected by {who}: {why}", "由 {who} 拒绝：{why}"},
	{"rejected by {who}", "由 {who} 拒绝"},
	{"signal {s} by {who}", "{who} 发出信号 {s}"},
	{"another step or item has failed", "另一个步骤或子项失败"},
	{"the flow was {o*}", "流程{o*}"},
	{"its if is false", "条件 if 不成立"},
	{"nothing that it needs has failed", "所依赖的步骤均未失败"},
	{"all steps have ended in success", "所有步骤均已成功"},
	{"{n} of {m} items have not succeeded", "{m} 个子项中有 {n} 个未成功"},
	{"not yet run again: {s}", "尚未重新运行：{s}"},
	{"its result is not JSON", "其结果不是 JSON"},
	{"there is no job {j}", "任务 {j} 不存在"},
	{"job {j} is paused by {who}: {why}", "任务 {j} 被 {who} 暂停：{why}"},
	{"job {j} is paused by {who}", "任务 {j} 被 {who} 暂停"},
	{"the timeout has passed: {a*}", "已超时：{a*}"},
	{"the timeout has passed", "已超时"},
	{"the node has lost touch with the store: {a*}", "节点与存储失去联系：{a*}"},
	{"the node has lost touch with the store", "节点与存储失去联系"},
	{"the node has stopped: {a*}", "节点已停止：{a*}"},
	{"the node has stopped", "节点已停止"},
	{"ended by the watchdog, {a*}", "由看门狗结束，{a*}"},
	{"the machine has no room to start it: {e}", "机器没有资源启动它：{e}"},
	{"not started: {e}", "未启动：{e}"},
	{"its secrets cannot be read: {e}", "无法读取其密钥：{e}"},
	{"this node has no executor for it", "该节点没有相应的执行器"},
	{"exit status {n}, but the output does not match {m}", "退出码 {n}，但输出不匹配 {m}"},
	{"exit status {n}: {e}", "退出码 {n}：{e}"},
	{"exit status {n}", "退出码 {n}"},
	{"sent SIGTERM, and it exited with {n}", "发送 SIGTERM 后以 {n} 退出"},
	{"SIGTERM after {d}, ended by {s} {most} later", "{d}后发送 SIGTERM，再过 {most}被 {s} 终止"},
	{"SIGTERM after {d}, exit status {n} {most} later", "{d}后发送 SIGTERM，再过 {most}以 {n} 退出"},
	{"SIGTERM after {d}, SIGKILL {most} later", "{d}后发送 SIGTERM，再过 {most}发送 SIGKILL"},
	{"SIGKILL after {d}", "{d}后发送 SIGKILL"},
	{"killed by {s}", "被 {s} 终止"},
	{"the labels {p} and the handler {h}", "标签 {p} 及处理器 {h}"},
	{"the label {p} and the handler {h}", "标签 {p} 及处理器 {h}"},
	{"the labels {p}", "标签 {p}"},
	{"the label {p}", "标签 {p}"},
	{"the handler {h}", "处理器 {h}"},
	{"failed: {a*}", "失败：{a*}"},
	{"timed out: {a*}", "超时：{a*}"},
	{"was lost: {a*}", "失联：{a*}"},
	{"was missed: {a*}", "错过：{a*}"},
	{"failed", "失败"},
	{"timed out", "超时"},
	{"was lost", "失联"},
	{"was missed", "错过"},
	{"lost", "失联"},
	{"cancelled", "已取消"},
	{"replaced", "已被取代"},
	{"skipped", "已跳过"},
	{"missed", "已错过"},
	{"succeeded", "成功"},
}

// translation is a text in English and Chinese.
type translation struct{ en, zh string }

type reason struct {
	translation
	begins  string // with which a text that fits begins
	pattern *regexp.Regexp
	names   []string
}

var placeholder = regexp.MustCompile(`\{([a-z]+\*?)\}`)

var compiledReasons = compile(reasons)

// compile makes patterns. A value that is translated in turn may have any text, and another
// none that goes over a line.
func compile(texts []translation) []reason {
	list := make([]reason, 0, len(texts))
	for _, r := range texts {
		c := reason{translation: r}
		c.begins, _, _ = strings.Cut(r.en, "{")
		text, last := "^", 0
		for _, at := range placeholder.FindAllStringSubmatchIndex(r.en, -1) {
			text += regexp.QuoteMeta(r.en[last:at[0]])
			name := r.en[at[2]:at[3]]
			c.names = append(c.names, name)
			if last = at[1]; strings.HasSuffix(name, "*") {
				text += `(?s:(.+?))`
			} else {
				text += `(.+?)`
			}
		}
		c.pattern = regexp.MustCompile(text + regexp.QuoteMeta(r.en[last:]) + "$")
		list = append(list, c)
	}
	return list
}

const (
	// reasonDepth bounds reasons within reasons.
	reasonDepth = 4
	// reasonMax is how long a reason may be to be translated: what is longer is output of programs.
	reasonMax = 2000
)

// stamp is how the engine writes a moment.
var stamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// duration is how job.Duration says itself in words.
var duration = regexp.MustCompile(`^\d+(\.\d+)? (d|h|min|s|ms|µs|ns)( \d+(\.\d+)? (h|min|s|ms|µs))*$`)

var chineseUnits = strings.NewReplacer(" ms", " 毫秒", " µs", " 微秒", " ns", " 纳秒", " min", " 分钟", " d", " 天", " h", " 小时", " s", " 秒")

// Reason returns the reason of a run, which is written in English and in UTC, in the language and
// with moments as at writes them. What programs have said, and what is not known, stays as it is.
func (l Lang) Reason(text string, at func(time.Time) string) string {
	if text == "" || len(text) > reasonMax || l != Chinese && !stamp.MatchString(text) {
		return text
	}
	return l.translated(compiledReasons, text, at, reasonDepth)
}

func (l Lang) translated(by []reason, text string, at func(time.Time) string, depth int) string {
	if depth == 0 {
		return text
	}
	for _, r := range by {
		if !strings.HasPrefix(text, r.begins) {
			continue
		}
		found := r.pattern.FindStringSubmatch(text)
		if found == nil {
			continue
		}
		said := r.en
		if l == Chinese {
			said = r.zh
		}
		pairs := make([]string, 0, 2*len(r.names))
		for i, name := range r.names {
			value := found[i+1]
			if strings.HasSuffix(name, "*") {
				value = l.translated(by, value, at, depth-1)
			} else if t, err := time.Parse(time.RFC3339, value); err == nil && at != nil {
				value = at(t)
			} else if l == Chinese && (name == "d" || name == "most") && duration.MatchString(value) {
				value = chineseUnits.Replace(value)
			}
			pairs = append(pairs, "{"+name+"}", value)
		}
		return strings.NewReplacer(pairs...).Replace(said)
	}
	return text
}
