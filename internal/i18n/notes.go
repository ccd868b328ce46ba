package i18n

// notes are what the import from xxl-job-admin says of jobs, groups and users, as reasons are
// written.
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
}

var compiledNotes = compile(notes)

// ImportNote returns a note of the import from xxl-job-admin, which is written in English, in
// the language. What is not known stays as it is.
func (l Lang) ImportNote(text string) string {
	if l != Chinese || len(text) > reasonMax {
		return text
	}
	return translated(compiledNotes, text, 1)
}
