package i18n

// hints are what a server says of itself, as patterns are written: what was checked, what was found,
// and what to do.
var hints = []translation{
	{"this address does not exist", "该地址不存在"},
	{"backup", "备份"},
	{"belfry backup has made none", "尚未用 belfry backup 做过备份"},
	{"run belfry backup FILE each day, and keep the file on another machine", "每天执行 belfry backup FILE，并将文件保存到其他机器"},
	{"the last one is {n} days old", "上次备份是 {n} 天前"},
	{"run belfry backup FILE each day", "每天执行 belfry backup FILE"},
	{"channels", "通知渠道"},
	{"there is none: failures show only on the pages and in belfry attention", "没有通知渠道：只有查看页面或 belfry attention 才能看到失败"},
	{"define a channel, as notifications.md shows", "请按 notifications.md 的说明定义通知渠道"},
	{"channel {x}", "通知渠道 {x}"},
	{"the latest try, at {t}, has failed: {e}", "最近一次尝试（{t}）失败：{e}"},
	{"{c} tries again, and says what the service answers", "{c} 会再试一次，并给出服务的应答"},
	{"user of jobs", "任务的用户"},
	{"shell", "命令解释器"},
	{"this node has no sh in the PATH of commands: command lines cannot run here, only programs that are named with their arguments", "此节点的命令 PATH 中没有 sh：无法运行命令行，只能运行以参数列表写出的程序"},
	{"install a shell, or set shell.path; in a container use an image with the programs of the jobs, as install.md shows", "请安装 shell，或设置 shell.path；在容器中请使用带有任务所需程序的镜像，见 install.md"},
	{"commands run as {u}, the user of the server: anyone who may define jobs can read its token and its store, whatever the namespace", "命令以服务器的用户 {u} 运行：能定义任务的人可以读取其令牌和存储，不论命名空间"},
	{"run the server as root with --run-as, as operations.md shows, to keep namespaces apart", "按 operations.md 的说明以 root 加 --run-as 运行服务器，以隔离各命名空间"},
	{"data directory", "数据目录"},
	{"{d} does not exist", "{d} 不存在"},
	{"{d} is not a directory", "{d} 不是目录"},
	{"{d} is not writable for this user", "当前用户无权写入 {d}"},
	{"{d} belongs to {o}, and this is {u}", "{d} 属于 {o}，而当前用户是 {u}"},
	{"other users of this machine can read {d}: its mode is {m}", "本机其他用户可以读取 {d}：其权限为 {m}"},
	{"run this as the user of the server, or give the directory to this user with chown", "以服务器的用户执行，或用 chown 将目录交给当前用户"},
	{"run this as the user of the server", "以服务器的用户执行"},
	{"run the server, and this, as {u}", "以 {u} 运行服务器和本命令"},
	{"disk space", "磁盘空间"},
	{"{s} free", "可用 {s}"},
	{"free some space: nothing starts on a full disk", "请释放空间：磁盘写满后无法启动任何运行"},
	{"keep in the configuration limits how much history and output a server keeps", "配置中的 keep 可限制保留的历史和输出"},
	{"store", "存储"},
	{"clock of {n}", "节点 {n} 的时钟"},
	{"{s} s from that of the store", "与存储的时钟相差 {s} 秒"},
	{"synchronize the clocks; jobs follow the clock of the store", "请同步时钟；任务以存储的时钟为准"},
	{"versions", "版本"},
	{"nodes have the versions {v}", "各节点的版本为 {v}"},
	{"upgrade all nodes to one version: a job may fall due at another time on each", "请将所有节点升级到同一版本：否则任务在各节点的到期时间可能不同"},
	{"upgrade all nodes to one version", "请将所有节点升级到同一版本"},
	{"its id was made on {t}; this server keeps finished runs forever, at most {n} of a job, unless policy.keep of the job differs", "该 ID 生成于 {t}；本服务器永久保留已结束的运行，每个任务最多 {n} 次，除非任务的 policy.keep 另有设置"},
	{"its id was made on {t}; this server keeps finished runs forever, unless policy.keep of the job differs", "该 ID 生成于 {t}；本服务器永久保留已结束的运行，除非任务的 policy.keep 另有设置"},
	{"its id was made on {t}; this server keeps finished runs for {d}, at most {n} of a job, unless policy.keep of the job differs", "该 ID 生成于 {t}；本服务器保留 {d}内结束的运行，每个任务最多 {n} 次，除非任务的 policy.keep 另有设置"},
	{"its id was made on {t}; this server keeps finished runs for {d}, unless policy.keep of the job differs", "该 ID 生成于 {t}；本服务器保留 {d}内结束的运行，除非任务的 policy.keep 另有设置"},
	{"there is no run {x}", "没有运行 {x}"},
	{"there is no version {n} of job {x}", "任务 {x} 没有版本 {n}"},
	{"there is no job {x}", "没有任务 {x}"},
	{"list all jobs: {c}", "列出所有任务：{c}"},
	{"from that step: {c}", "从该步骤开始：{c}"},
	{"start all of it as it is now: {c}", "按当前定义重新运行整个任务：{c}"},
	{"the latest is {n}", "最新版本为 {n}"},
	{"there is no node {x}", "没有节点 {x}"},
	{"there is no channel {x}", "没有通知渠道 {x}"},
	{"there is no notification {x}", "没有通知 {x}"},
	{"there is no token {x}", "没有令牌 {x}"},
	{"zone data", "时区数据"},
	{"xxl.short_tokens accepts an access token of executors that can be guessed: give them one of 16 characters or more, list both in xxl.tokens, and remove the short one once all executors have the new one", "xxl.short_tokens 放行了可被猜出的执行器令牌：请为执行器换成 16 个字符以上的令牌，在 xxl.tokens 中同时列出两者，全部换完后再删除短令牌"},
	{"nodes have the time zone data {v}", "各节点的时区数据为 {v}"},
}

var compiledHints = compile(hints)

// Hint returns a hint of a server, which is written in English, in the language. What is not known
// stays as it is.
func (l Lang) Hint(text string) string {
	if l != Chinese || len(text) > patternMax {
		return text
	}
	return l.translated(compiledHints, text, 1)
}
