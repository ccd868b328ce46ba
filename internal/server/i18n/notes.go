package i18n

// notes are patterns for what the import from xxl-job-admin says of jobs, groups and users, and the
// import of a crontab says of lines.
var notes = []translation{
	{"another group has the same name in lower case, so the namespace ends in the number of the group", "另一个分组的名称转为小写后与它相同，因此命名空间末尾加上了分组编号"},
	{"the group has a token of its own, which is not taken over: {c} keeps it, and token: {s} in a document of kind executors uses it", "该分组有自己的 access token，不会迁移：用 {c} 保存，再在 kind: executors 的文档中以 token: {s} 引用"},
	{"has no address: executors must register", "没有地址：执行器须自行注册"},
	{"is not taken over: {why}", "未迁移：{why}"},
	{"is kept as the label {l}: --mail-server and --mail-from make channels that send mail for it", "保留为标签 {l}：加上 --mail-server 和 --mail-from 可生成发送邮件的通知渠道"},
	{"makes no channel: {why}", "无法生成通知渠道：{why}"},
	{"is cut to {n} bytes in the label", "标签中截断为 {n} 字节"},
	{"code is sent to executors only with xxl.glue: true on the nodes", "只有节点配置了 xxl.glue: true，代码才会下发到执行器"},
	{"{e} never falls due again: {why}. The job has no schedule", "{e} 不会再触发：{why}。任务没有调度计划"},
	{"Quartz leaves out some times of {e}, where W stands beside several times of day; Belfry runs at all of them", "{e} 中 W 与一天内的多个时间并用，Quartz 会漏掉其中一些时间；Belfry 全部执行"},
	{"{r} is not known: the first executor is used", "未知的路由策略 {r}：使用第一台执行器"},
	{"{b} is not known: runs wait for each other", "未知的阻塞处理策略 {b}：按串行处理"},
	{"one run at a time on all executors together, because of --overlap job", "因为 --overlap job，在全部执行器上同一时间只有一次执行"},
	{"holds for each executor by itself, as before: with the route {r} the job may run on several machines at once", "与原来一样，每台执行器各自判断：路由策略为 {r} 时，任务可能同时在多台机器上执行"},
	{"{n} is more than {m}, the most that Belfry retries", "{n} 超过 Belfry 的最大重试次数 {m}"},
	{"{id} is no job: left out", "{id} 不是任务：已忽略"},
	{"{id} is the job itself: left out", "{id} 是任务自身：已忽略"},
	{"{id} or this job is not imported: left out", "{id} 或本任务无法导入：已忽略"},
	{"job {id}, which starts this one, is not imported: it does not start it", "启动本任务的任务 {id} 无法导入：不会触发本任务"},
	{"{id} leads back to this job, and jobs that follow each other in a circle are refused: left out", "{id} 会形成循环依赖，Belfry 不接受：已忽略"},
	{"children start once, when all parts have succeeded, and not for each part", "全部分片成功后，子任务只触发一次，而不是每个分片各触发一次"},
	{"the job was stopped, and its parents started it all the same: it is active without its own schedule {e}", "任务已停止，但父任务仍会触发它：因此保持启用，不带自己的调度计划 {e}"},
	{"FIX_DELAY beside parents is two jobs in Belfry: the job only follows its parents", "同时有 FIX_DELAY 和父任务在 Belfry 中需要两个任务：本任务只由父任务触发"},
	{"the old admin says {a}, Belfry {b}: compare --zone and the expression", "原调度中心为 {a}，Belfry 为 {b}：请核对 --zone 和表达式"},
	{"has rights for no group: needs no token", "没有任何分组的权限：不需要令牌"},
	{"the setting {n} is left out: it is not the name of an environment variable", "忽略设置 {n}：它不是环境变量的名称"},
	{"cron starts commands in the home directory of the user; set run.dir if the command depends on it", "cron 在用户的主目录中启动命令；如果命令依赖该目录，请设置 run.dir"},
	{"output is kept and not mailed to {a}, here and below", "此处及以下的输出会保存，不会邮寄给 {a}"},
	{"sudo and the like gain no rights in a job: name the user in run.user, and leave them out", "任务中的 sudo 等命令不能提升权限：请在 run.user 中指定用户，并去掉它们"},
	{"cron takes names of three letters only: {a} is read as {b}", "cron 只接受三个字母的名称：{a} 按 {b} 读取"},
	{"the last line has no end of line: some crons ignore it, or the whole file", "最后一行没有换行符：某些 cron 会忽略该行或整个文件"},
	{"two backslashes stay two, as with cronie; Debian's cron makes one of them", "两个反斜杠保持不变（同 cronie）；Debian 的 cron 会合并为一个"},
	{"runs at each start of the node, not of the machine", "在节点每次启动时运行，而不是机器启动时"},
	{"cron draws the value of ~ when it starts; the job keeps the one that its name gives", "cron 在启动时随机选取 ~ 的值；任务则固定使用由其名称得出的值"},
	{"the folder {d} cannot be read here: its scripts stay one job", "此处无法读取目录 {d}：其中的脚本合为一个任务"},
	{"each script of {d} is a job of its own; scripts that are added to the folder later need another import", "{d} 中的每个脚本各成一个任务；以后加入该目录的脚本需要再次导入"},
	{"found {n} field, want {m} and a command", "只有 {n} 个字段，需要 {m} 个字段和一条命令"},
	{"found {n} fields, want {m} and a command", "只有 {n} 个字段，需要 {m} 个字段和一条命令"},
	{"the command is missing: in a system crontab a user stands before it", "缺少命令：系统 crontab 中命令之前是用户"},
	{"the command is missing", "缺少命令"},
	{"RANDOM_DELAY: {m} is not a number of minutes from 0 to 1440", "RANDOM_DELAY：{m} 不是 0 到 1440 之间的分钟数"},
	{"never falls due: {r}", "永远不会到期：{r}"},
	{"the folder {d} has no scripts", "目录 {d} 中没有脚本"},
}

var compiledNotes = compile(notes)

// ImportNote returns a note of an import, which is written in English, in the language. What is not known stays as it is.
func (l Lang) ImportNote(text string) string {
	if l != Chinese || len(text) > patternMax {
		return text
	}
	return l.translated(compiledNotes, text, 1)
}
