package reason

import (
	"time"

	"github.com/belfry-cron/belfry/job"
)

type (
	why  = job.Reason
	span = time.Duration
	at   = time.Time
	id   = job.ID
)

// The words of others.
var _ = add(job.ReasonText, "{text}", "{text}", advice{
	"Others have said it: a command, a service, a person, the operating system or an earlier version of Belfry.", "由他者给出：命令、服务、人员、操作系统或较早版本的 Belfry。",
}, kindOf[Words]())

// Links between reasons.
var (
	Both       = two[why, why]("both", "{first}; {second}", "{first}；{second}", parts)
	Because    = two[why, why]("because", "{what}: {why}", "{what}：{why}", parts)
	NotRetried = two[why, why]("not_retried", "{why}; not retried: {not}", "{why}；不再重试：{not}", parts)
	Attempted  = three[int, job.Outcome, why]("attempt_ended", "attempt {attempt} {outcome}: {why}", "第 {attempt} 次尝试{outcome}：{why}", parts)
	RetryLate  = three[int, span, why]("retry_too_late", "attempt {attempt} could not start within {within} of the first; {why}", "第 {attempt} 次尝试未能在首次尝试后 {within}内启动；{why}", nodes)
)

// Ends that users, jobs and stores bring about.
var (
	Cancelled       = two[string, why]("cancelled", "cancelled by {by}[: {why}]", "由 {by} 取消[：{why}]", nothing)
	CancelledOnly   = none("cancelled_only", "cancelled", "已取消", nothing)
	CancelledBefore = one[string]("cancelled_before", "it was cancelled by {by}", "已由 {by} 取消", nothing)
	JobDeleted      = one[string]("job_deleted", "the job was deleted[ by {by}]", "任务已[被 {by} ]删除", nothing)
	JobPaused       = two[string, why]("job_paused", "the job was paused[ by {by}][: {why}]", "任务已[被 {by} ]暂停[：{why}]", nothing)
	InWindow        = three[string, at, why]("in_window", "the maintenance window {window} is open until {until}[: {why}]", "维护窗口 {window} 开放至 {until}[：{why}]",
		advice{"Nothing for now: it continues when the window closes. To close it earlier, use belfry window close.", "暂时无需处理：窗口关闭后会继续。如需提前关闭，请使用 belfry window close。"})
	HeldMax   = two[why, int]("held_max", "{why}, and {n} {n:run waits|runs wait} for its end already", "{why}，且已有 {n} 次运行在等待其结束", nothing)
	OutOfTurn = four[string, int, span, at]("out_of_turn", "pool {pool} lets {limit} {limit:run|runs} start in {per}, and no turn is left before {until}", "资源池 {pool} 每 {per} 允许启动 {limit} 次运行，{until} 之前没有空余",
		advice{"Nothing for now: it starts when its turn comes. For more starts, raise the rate of the pool.", "暂时无需处理：轮到时会启动。如需更多启动，请提高该资源池的速率。"})
	JobResumed      = one[string]("job_resumed", "the job was paused and resumed[ by {by}]", "任务曾[被 {by} ]暂停并恢复", nothing)
	ScheduleChanged = one[string]("schedule_changed", "the schedule of the job was changed[ by {by}]", "任务的调度计划已[被 {by} ]修改", nothing)
	CalendarChanged = two[string, string]("calendar_changed", "calendar {calendar} was changed[ by {by}]", "日历 {calendar} 已[被 {by} ]修改", nothing)
	DefaultsChanged = none("defaults_changed", "the defaults of the server were changed", "服务器的默认值已更改", nothing)
	ZoneChanged     = two[string, string]("zone_changed", "the default time zone of the server was changed from {from} to {to}", "服务器的默认时区由 {from} 改为 {to}", nothing)
	StoreRestored   = none("store_restored", "the store was restored from a backup", "存储已从备份恢复", nothing)
	RestoredRun     = none("store_restored_run", "the store was restored from a backup, and it may have run since the backup was made", "存储已从备份恢复，备份之后它可能运行过", nothing)
	JobGone         = none("job_gone", "its job does not exist", "其任务不存在", advice{"The store was damaged and mended: see belfry store check.", "存储曾损坏并已修复：见 belfry store check。"})
	Twice           = two[id, at]("twice", "it was there twice: run {run} of {time}", "它重复存在：{time} 的运行 {run}", advice{"The store was damaged and mended: see belfry store check.", "存储曾损坏并已修复：见 belfry store check。"})
	CursorMoved     = none("cursor_moved", "belfry store check moved the cursor back", "belfry store check 将进度移回", nothing)
	Rescheduled     = none("rescheduled", "the job was rescheduled after the run was planned", "计划该运行后，任务重新调度", nothing)
	RescheduledOft  = two[int, why]("rescheduled_times", "the job was rescheduled {n} times after the run was planned, the last time because {why}", "计划该运行后，任务重新调度了 {n} 次，最近一次是因为{why}", nothing)
	PausedByFailure = two[int, id]("paused_by_failures", "{n} {n:run|runs} failed in a row, the last was {run}", "连续 {n} 次运行失败，最近一次为 {run}",
		advice{"Mend the failure that the run shows, and resume the job.", "修复该运行显示的故障，然后恢复任务。"})
)

// Ends without a reason of their own.
var (
	Unexplained   = none("unexplained", "it failed without giving a reason", "失败且未说明原因", output)
	Timeout       = one[span]("timeout", "it took longer than its timeout[, {timeout}]", "耗时超过超时设置[（{timeout}）]", timing)
	UnknownEnd    = none("unknown_end", "its node does not know its outcome", "其节点不知道结果", fences)
	Succeeded     = none("succeeded", "it succeeded", "成功", nothing)
	EndedSo       = one[job.Outcome]("ended_so", "it was {outcome}", "结果为：{outcome}", nothing)
	CameLate      = one[why]("came_late", "{why} (this came after it had been recorded as lost)", "{why}（在记录为失联之后才收到）", fences)
	SaidLater     = two[why, job.Outcome]("said_later", "{why}; its node said later that it {outcome}", "{why}；其节点后来报告：{outcome}", fences)
	UnfencedLost  = none("unfenced", "it started before its job had retries of lost attempts, and its node may still run it", "它在任务设置失联重试之前启动，其节点可能仍在运行它", fences)
	NextTooLate   = one[span]("next_too_late", "the next attempt would start more than {within} after the first", "下一次尝试将晚于首次尝试超过 {within}", nothing)
	Panicked      = one[Words]("panic", "panic: {error}", "程序崩溃：{error}", output)
	ParamRefused  = two[string, job.Reason]("param_refused", "parameter {name}: {why}", "参数 {name}：{why}", params)
	NoExecutor    = none("no_executor", "this node has no executor for it", "该节点没有相应的执行器", config)
	NoHandler     = one[string]("no_handler", `this program has no handler "{handler}"`, `该程序没有处理器 "{handler}"`, change)
	HandlerLeft   = one[why]("handler_left", "{why}; the handler ignored the end of its context and was left behind", "{why}；处理器忽略了上下文的结束，已被放弃", output)
	SecretsRefuse = one[Words]("secrets_refused", "not started: {error}", "未启动：{error}", change)
	SecretsFailed = one[Words]("secrets_failed", "its secrets cannot be read: {error}", "无法读取其密钥：{error}", config)
	HistoryCut    = two[why, Words]("history_cut", "{why}; the history store has refused the whole record: {error}", "{why}；历史存储拒绝了完整的记录：{error}", nothing)
)

// Nodes that were lost.
var (
	NodeRestarted    = one[string]("node_restarted", "node {node} was started again before it reported the result", "节点 {node} 在报告结果之前重新启动", machine)
	NodeLeft         = one[string]("node_left", "node {node} has ended its session", "节点 {node} 已结束会话", machine)
	NodeSilent       = two[string, span]("node_silent", "node {node} was silent for {span}", "节点 {node} 失联 {span}", machine)
	StartUnknown     = one[why]("start_unknown", "{why}; the run was due after the node was last heard, so it may not have started", "{why}；该运行在最后一次收到节点消息之后才到期，因此可能并未启动", machine)
	NodeGone         = one[string]("node_gone", "node {node}, which it belongs to, is gone", "它所属的节点 {node} 已消失", nodes)
	ProcessEnded     = one[string]("process_ended", "node {node} ended before it reported the result", "节点 {node} 在报告结果之前退出", machine)
	DiskLow          = one[Words]("disk_low", "the disk of its data directory has {space} free: nothing starts on a full disk", "其数据目录所在磁盘仅剩 {space}：磁盘写满后无法启动任何运行", machine)
	NodeUnheard      = one[int]("node_unheard", "the node is no longer heard of[, and had {n} running {n:attempt|attempts}]", "节点失联[，失联时有 {n} 个正在进行的尝试]", machine)
	RecordsWait      = two[int, Words]("records_wait", "{n} {n:record waits|records wait} for it: {error}", "{n} 条记录等待写入：{error}", advice{"See whether the history store answers: what waits for it is kept on the nodes.", "检查历史存储是否应答：等待写入的内容保存在各节点上。"})
	ClockAhead       = one[span]("clock_ahead", "the clock of the node is {span} ahead, or was just set, so it plans and claims nothing", "节点时钟快了 {span}，或刚被调整，因此不计划也不认领运行", machine)
	ClockBehind      = one[span]("clock_behind", "the clock of the node is {span} behind, or was just set, so it plans and claims nothing", "节点时钟慢了 {span}，或刚被调整，因此不计划也不认领运行", machine)
	StoreClockAhead  = one[span]("clock_ahead_of_store", "the clock of the node is {span} ahead of the clock of the store, which jobs go by", "节点时钟比任务所依据的存储时钟快 {span}", machine)
	StoreClockBehind = one[span]("clock_behind_store", "the clock of the node is {span} behind the clock of the store, which jobs go by", "节点时钟比任务所依据的存储时钟慢 {span}", machine)
)

// What is missed.
var (
	CouldStart    = two[at, why]("could_start_until", "it could start until {until}: {why}", "最迟应在 {until} 启动：{why}", missed)
	NoNodeRan     = none("no_node_ran", "no node could run it in time", "没有节点能及时运行", nodes)
	NodeTooSlow   = one[string]("node_too_slow", "node {node} did not start it in time", "节点 {node} 未能及时启动它", nodes)
	Unplanned     = one[why]("unplanned", "no node planned it in time[, and {why}]", "没有节点及时计划该运行[，且{why}]", missed)
	NoNodeThere   = two[at, at]("no_node_running", "no node was running from {from} to {to}", "{from} 至 {to} 没有节点在运行", missed)
	MissedNone    = one[why]("missed_none", "{why}, and the missed policy is none", "{why}，且错过策略为 none", missed)
	MissedLatest  = one[why]("missed_latest", "{why}, and the missed policy is latest: a later one runs", "{why}，且错过策略为 latest：运行较晚的一次", nothing)
	MissedAll     = two[why, int]("missed_all", "{why}, and at most {n} are caught up", "{why}，且最多补跑 {n} 次", missed)
	MissedLate    = two[why, span]("missed_late", "{why}, and it may start at most {late} late", "{why}，且最多可延迟 {late}启动", missed)
	StoreAway     = three[string, at, at]("store_unreached", "node {node} did not reach the store from {from} to {to}", "节点 {node} 在 {from} 至 {to} 无法连接存储", stores)
	AfterOutage   = two[why, why]("after_outage", "{why}; {outage}", "{why}；{outage}", stores)
	Unaccounted   = two[at, at]("occurrence_unaccounted", "the occurrence of {time} has neither a run nor a record, and the cursor stands at {cursor}", "{time} 的那一次既没有运行也没有记录，而进度已到 {cursor}", watched)
	OccurredTwice = three[at, id, id]("occurrence_doubled", "the occurrence of {time} was run twice: as run {run} and as run {other}", "{time} 的那一次运行了两次：运行 {run} 和运行 {other}", watched)
	BegunEarly    = three[id, at, span]("started_early", "run {run} of {time} started {early} before it was due", "{time} 的运行 {run} 提前 {early}启动", watched)
	StepsLost     = one[int]("steps_lost", "the store no longer has {n} {n:step|steps} that it had acknowledged to the node, as after a failover or a crash", "存储已不再拥有它向该节点确认过的 {n} 个步骤，例如发生故障切换或崩溃之后", watched)
	LossNear      = one[at]("store_loss_near", "the store lost steps at {time} that it had acknowledged: what happened to this run before may be missing here, or happen twice", "存储在 {time} 丢失了已确认的步骤：此前该运行发生的事情可能未记录在此，或会重复发生", watched)
	DueSince      = two[at, why]("due_since", "due {due}[: {why}]", "到期时间 {due}[：{why}]", nodes)
	Unclaimed     = none("unclaimed", "no node has claimed it yet", "尚无节点认领", nodes)
)

// Nodes that do not suit.
var (
	NoNodes           = none("no_nodes", "no live node runs jobs", "没有在线节点运行任务", nodes)
	OnlyPrograms      = none("only_programs", "no live node runs commands or requests: the live ones are programs that run their own handlers", "没有在线节点能执行命令或请求：在线的都是只运行自身处理器的程序", nodes)
	NoNodeHas         = one[why]("no_node_has", "no live node has {what}", "没有在线节点具备{what}", nodes)
	NodeLacks         = two[string, why]("node_lacks", "node {node} has not {what}", "节点 {node} 不具备{what}", nodes)
	Labels            = one[[]string]("labels", "the {labels:label|labels} {labels}", "标签 {labels}", nodes)
	Handler           = one[string]("handler", "the handler {handler}", "处理器 {handler}", nodes)
	EngineWorking     = none("engine_working", "a working container engine", "可用的容器引擎", engines)
	ClusterConfigured = one[string]("cluster_configured", "the cluster {cluster} of Kubernetes in its configuration", "其配置中的 Kubernetes 集群 {cluster}", config)
	XXLConfigured     = none("xxl_configured", "xxl in its configuration", "xxl 配置", config)
	And               = two[why, why]("and", "{first} and {second}", "{first}及{second}", nodes)
	WorkerElsewhere   = three[string, string, string]("worker_elsewhere", "the token of the worker {worker} is for the namespace {namespace}, and the job is in {job}", "工作节点 {worker} 的令牌属于命名空间 {namespace}，而任务在 {job}", nodes)
	NodeDrained       = three[string, string, Words]("node_drained", "node {node} was drained by {by}[: {why}]", "节点 {node} 被 {by} 排空[：{why}]", nodes)
	NodeFull          = two[string, int]("node_full", "node {node} runs as many attempts as it may: {n}", "节点 {node} 已达并发上限：{n}", nodes)
	BelongsDrained    = one[why]("belongs_drained", "it belongs to its node, and {why}", "它属于其节点，而{why}", nodes)
	BelongsAway       = one[string]("belongs_away", "it belongs to node {node}, which is not live", "它属于节点 {node}，而该节点不在线", nodes)
)

// Commands that no node may run.
var (
	OfStep         = two[string, why]("of_step", "step {step}: {why}", "步骤 {step}：{why}", steps)
	NoShell        = one[string]("no_shell", "no node may run it: it needs sh, and node {node} has none in shell.path", "没有节点可以运行：需要 sh，而节点 {node} 的 shell.path 中没有 sh", config)
	NoRunUser      = one[string]("no_run_user", "no node may run it without run.user: name a user in run.user, or start node {node} with --run-as", "没有 run.user 时没有节点可以运行：请在 run.user 中指定用户，或用 --run-as 启动节点 {node}", change)
	CannotSwitch   = three[string, string, string]("cannot_switch_user", "no node may run as {user}: node {node} runs as {self} and cannot switch users; run it as root with --run-as {self}, or leave run.user out", "没有节点可以以 {user} 身份运行：节点 {node} 以 {self} 身份运行，不能切换用户；请以 root 并用 --run-as {self} 运行它，或不填 run.user", config)
	NoSuchUser     = two[string, string]("no_such_user", "no node may run as {user}: node {node} has no such user", "没有节点可以以 {user} 身份运行：节点 {node} 没有该用户", config)
	AllowInNewFile = three[string, string, string]("allow_user_new_file", "no node may run as {user}: start node {node} with --config and a file that has {setting}", "没有节点可以以 {user} 身份运行：请用 --config 启动节点 {node}，并在该文件中设置 {setting}", config)
	AllowInFile    = five[string, string, string, string, string]("allow_user", "no node may run as {user}: set {setting} in {file} on node {node}, then {reload}", "没有节点可以以 {user} 身份运行：请在节点 {node} 的 {file} 中设置 {setting}，然后执行 {reload}", config)
)

// Runs that are in the way.
var (
	TookPlace     = two[id, at]("took_place", "run {run} of {time} took its place", "{time} 的运行 {run} 取代了它", nothing)
	WaitedLonger  = two[id, at]("waited_longer", "run {run} of {time} had waited longer for its slot", "{time} 的运行 {run} 等待该槽位更久", overlap)
	HoldsSlot     = two[id, at]("holds_slot", "run {run} of {time} holds its slot until its next attempt", "{time} 的运行 {run} 占用槽位直至下一次尝试", overlap)
	AboutToStart  = three[id, at, string]("about_to_start", "run {run} of {time} was about to start[ on node {node}]", "{time} 的运行 {run} 即将[在节点 {node} 上]启动", overlap)
	WasRunning    = four[id, at, string, span]("was_running", "run {run} of {time} was running[ on node {node}] when this run was claimed, {late} after it was due", "认领时（到期后 {late}），{time} 的运行 {run} 正在[节点 {node} 上]运行", overlap)
	StillRunning  = three[id, at, string]("still_running", "run {run} of {time} was still running[ on node {node}]", "{time} 的运行 {run} 仍在[节点 {node} 上]运行", overlap)
	BeingEnded    = three[id, at, string]("being_cancelled", "run {run} of {time} is being cancelled[ on node {node}]", "{time} 的运行 {run} 正在[节点 {node} 上]取消", wait)
	HolderWaits   = three[id, at, why]("holder_waits", "run {run} of {time} is waiting: {why}", "{time} 的运行 {run} 正在等待：{why}", wait)
	EndUnreported = three[id, at, why]("end_unreported", "run {run} of {time} had not reported its end: {why}", "{time} 的运行 {run} 尚未报告结束：{why}", overlap)
	LastHeard     = two[string, span]("last_heard", "node {node} was last heard {span} ago", "节点 {node} 最后一次在线是 {span}前", machine)
	Unaccepted    = one[string]("results_unaccepted", "node {node} has results that the store has not accepted yet", "节点 {node} 有存储尚未接受的结果", machine)
	NotEnded      = two[id, at]("not_ended", "run {run} of {time} has not ended", "{time} 的运行 {run} 尚未结束", wait)
	QueueFull     = two[why, int]("queue_full", "{why}, and {n} {n:run waits|runs wait} already", "{why}，且已有 {n} 次运行在等待", overlap)
	PreviousNotOK = one[at]("previous_failed", "the occurrence of {time} has not succeeded", "{time} 那一次未成功", advice{"Run that occurrence again: this one waits for its success.", "重新运行那一次：本次运行等待其成功。"})
)

// Reports from outside.
var (
	NoReport      = none("no_report", "no report has come yet", "尚未收到报告", reports)
	NoReportUntil = two[at, span]("no_report_until", "no report came until {until}, {late} after it was due", "到 {until}（到期后 {late}）仍未收到报告", reports)
	StartReported = one[at]("start_reported", "its start was reported at {time}", "于 {time} 报告启动", wait)
	NoEndReported = two[at, at]("no_end_reported", "its start was reported at {time}, and no end until {until}", "于 {time} 报告启动，到 {until} 仍未报告结束", reports)
	CancelUnknown = three[string, why, string]("cancelled_unknown", "cancelled by {by}[: {why}]; {to} learns of it when it reports", "由 {by} 取消[：{why}]；{to} 在报告时才会得知", nothing)
	NoResult      = two[string, span]("no_result", "no result was reported by {to} within the timeout of {timeout}", "{to} 未在超时设置（{timeout}）内报告结果", reports)
	ReportsEnded  = three[string, at, span]("reports_ended", "{to} reported last that it is running at {time}, and nothing for longer than lost_after ({limit})", "{to} 最近于 {time} 报告仍在运行，之后超过 lost_after（{limit}）未再报告", reports)
)

// Flows.
var (
	TimeCame       = none("time_came", "the time has come", "时间已到", nothing)
	NothingWithin  = one[span]("nothing_within", "nothing has come within {span}", "{span}内没有到达", person)
	NothingYet     = none("nothing_yet", "nothing has come yet", "尚未到达", wait)
	Signalled      = two[string, string]("signalled", "signal {signal}[ by {by}]", "[{by} ]发出信号 {signal}", nothing)
	Approved       = two[string, Words]("approved", "approved[ by {by}][: {note}]", "已[由 {by} ]批准[：{note}]", nothing)
	Rejected       = two[string, Words]("rejected", "rejected[ by {by}][: {note}]", "已[由 {by} ]拒绝[：{note}]", nothing)
	OtherFailed    = none("other_failed", "another step or item has failed", "另一个步骤或子项失败", steps)
	ItemFailed     = none("item_failed", "another item has failed", "另一个子项失败", steps)
	FlowEnded      = one[job.Outcome]("flow_ended", "the flow was {outcome}", "流程{outcome}", nothing)
	IfFalse        = none("if_false", "its if is false", "条件 if 不成立", nothing)
	FieldFailed    = two[string, Words]("field_failed", "{field}: {error}", "{field}：{error}", change)
	StepFailed     = two[string, why]("step_failed", "step {step} has failed[: {why}]", "步骤 {step} 失败[：{why}]", steps)
	StepsFailed    = one[[]string]("steps_failed", "steps {steps} have failed", "步骤 {steps} 失败", steps)
	StepNotOK      = one[string]("step_not_succeeded", "step {step} has not succeeded", "步骤 {step} 未成功", steps)
	StepUnneeded   = one[string]("step_unneeded", "step {step} was not needed", "步骤 {step} 无需运行", nothing)
	NothingFailed  = none("nothing_failed", "nothing that it needs has failed", "所依赖的步骤均未失败", nothing)
	ItemsFailed    = two[int, int]("items_failed", "{n} of {all} items have not succeeded", "{all} 个子项中有 {n} 个未成功", steps)
	NotRunAgain    = one[[]string]("not_run_again", "not yet run again: {steps}", "尚未重新运行：{steps}", steps)
	SkippedAgain   = none("skipped_again", "skipped when the flow was run again", "重新运行流程时跳过", nothing)
	AllSucceeded   = none("all_succeeded", "all steps succeeded", "所有步骤均已成功", nothing)
	FlowTooDeep    = one[int]("flow_too_deep", "flows are nested more than {n} levels deep", "流程嵌套超过 {n} 层", change)
	NoJob          = one[string]("no_job", "there is no job {job}", "任务 {job} 不存在", change)
	JobIsPaused    = three[string, string, why]("job_is_paused", "job {job} is paused[ by {by}][: {why}]", "任务 {job} 已[被 {by} ]暂停[：{why}]", advice{"Resume the job that it names.", "恢复所述任务。"})
	NotForSteps    = one[string]("not_for_steps", "job {job} is not one that a step can run: it is split, or started elsewhere", "步骤不能运行任务 {job}：它被拆分，或在别处启动", change)
	ResultTooLong  = two[int, int]("result_too_long", "its result has {n} bytes, at most {most} are allowed", "其结果有 {n} 字节，最多允许 {most}", change)
	ResultNotJSON  = none("result_not_json", "its result is not JSON", "其结果不是 JSON", output)
	ResultsTooLong = one[int]("results_too_long", "with its result those of the flow have more than {most} bytes", "加上其结果，流程的结果超过 {most} 字节", change)
	StepAsks       = two[string, why]("step_asks", "step {step}: {asked}", "步骤 {step}：{asked}", person)
	StepWaits      = two[string, why]("step_waits_person", "step {step} waits for a person: {asked}", "步骤 {step} 等待人工处理：{asked}", person)
)

// Expectations that are not met.
var (
	NotStartedDue = one[span]("not_started", "it has not started {within} after it was due", "到期 {within}后仍未启动", expect)
	NotEndedDue   = one[span]("not_ended_due", "it has not ended {within} after it was due", "到期 {within}后仍未结束", expect)
	AttemptLong   = two[int, span]("attempt_long", "attempt {attempt} has not ended {within} after it started", "第 {attempt} 次尝试启动 {within}后仍未结束", expect)
	NeverStarted  = one[span]("never_started", "it did not start within {within} of its due time", "未在到期后 {within}内启动", expect)
	StartedLate   = two[span, span]("started_late", "it started {late} after it was due, expected was {most} at most", "到期 {late}后才启动，预期最多 {most}", expect)
	BeganLate     = one[span]("began_late", "it started {late} after it was due", "到期 {late}后才启动", nodes)
	EndedLate     = two[span, span]("ended_late", "it ended {late} after it was due, expected was {most} at most", "到期 {late}后才结束，预期最多 {most}", expect)
	TookLong      = three[int, span, span]("took_long", "attempt {attempt} took {took}, expected was less than {most}", "第 {attempt} 次尝试耗时 {took}，预期少于 {most}", expect)
	UsedMemory    = three[int, string, string]("used_memory", "attempt {attempt} used {used} of memory, expected was less than {most}", "第 {attempt} 次尝试使用内存 {used}，预期少于 {most}", used)
	UsedCPU       = three[int, span, span]("used_cpu", "attempt {attempt} used {used} of processor time, expected was less than {most}", "第 {attempt} 次尝试使用 CPU 时间 {used}，预期少于 {most}", used)
	RunsLong      = three[span, int, span]("runs_long", "has been running for {took}; the longest of the last {n} that succeeded took {longest}", "已运行 {took}；最近 {n} 次成功运行中最长的耗时 {longest}", timing)
	LastRun       = two[job.Outcome, why]("last_run", "the last run {outcome}[: {why}]", "最近一次运行{outcome}[：{why}]", output)
	OthersToo     = two[why, int]("others_too", "{why}; the same of {n} other {n:job|jobs}", "{why}；另有 {n} 个任务同样如此", parts)
	LastRuns      = three[int, job.Outcome, why]("last_runs", "the last {n} runs failed; the latest {outcome}[: {why}]", "最近 {n} 次运行失败；最近一次{outcome}[：{why}]", output)
)

// Reasons why a job does not fall due.
var (
	Completed      = none("job_completed", "the job is completed", "任务已完成", nothing)
	PausedNow      = two[string, why]("paused_now", "the job is paused[ by {by}][: {why}]", "任务已[被 {by} ]暂停[：{why}]", advice{"Resume the job.", "恢复任务。"})
	DueByOther     = none("due_by_other", "the job falls due when another one ends", "任务在另一个任务结束时到期", nothing)
	DueAfterEnd    = one[span]("due_after_end", "the job falls due {span} after its previous run has ended", "任务在上次运行结束 {span}后到期", nothing)
	DueAtBoot      = none("due_at_boot", "the job falls due when a node starts", "任务在节点启动时到期", nothing)
	ByHandOnly     = none("by_hand_only", "the job has no schedule; it runs by hand only", "任务没有调度计划，只能手动运行", nothing)
	NothingFollows = none("nothing_follows", "nothing follows in the schedule", "调度计划中没有后续", nothing)
)

// Ends before their time.
var (
	TimeoutPassed = none("timeout_passed", "the timeout has passed", "已超时", timing)
	NodeFenced    = none("node_fenced", "the node has lost touch with the store", "节点与存储失去联系", fences)
	NodeStopped   = none("node_stopped", "the node has stopped", "节点已停止", fences)
	NodeUpgraded  = none("node_upgraded", "the node has stopped, to continue as another version", "节点已停止，以便作为另一版本继续", fences)
	BeforeStart   = one[why]("before_start", "{why}, before it started", "{why}，尚未启动", nothing)
	BeforeSent    = one[why]("before_sent", "{why}, before anything was sent", "{why}，尚未发送任何内容", nothing)
	CannotGoOn    = one[Words]("cannot_continue", "this version of the program cannot continue with it: {error}", "该版本的程序无法继续运行它：{error}", fences)
)

// Ends of commands.
var (
	ExitStatus  = one[int]("exit_status", "exit status {status}", "退出码 {status}", output)
	NotExecuted = three[int, string, Words]("not_executed", "exit status {status}: {program}: {error}", "退出码 {status}：{program}：{error}", change)
	EndedBy     = one[string]("ended_by_signal", "ended by {signal}", "被 {signal} 终止", output)
	Hangs       = one[span]("hangs", "and has been hanging in the kernel since: it did not react within {within}", "此后一直挂在内核中：{within}内没有反应", machine)
	Unmatched   = two[why, string]("output_unmatched", `{why}, but the output does not match "{pattern}"`, `{why}，但输出不匹配 "{pattern}"`, output)
	OverMemory  = two[why, string]("over_memory", "{why}: it used more memory than {limit}", "{why}：使用的内存超过 {limit}", limits)
	OverTime    = two[why, span]("over_cpu_time", "{why}: it used {limit} of processor time", "{why}：使用了 {limit} 的处理器时间", limits)
	ByWatchdog  = two[why, why]("ended_by_watchdog", "{why}: ended by the watchdog, {end}", "{why}：由看门狗结束，{end}", fences)
	Killed      = two[span, why]("killed", "SIGKILL after {after}[, {end}]", "{after}后发送 SIGKILL[，{end}]", nothing)
	TermKilled  = three[span, span, why]("terminated_killed", "SIGTERM after {after}, SIGKILL {later} later[, {end}]", "{after}后发送 SIGTERM，再过 {later}发送 SIGKILL[，{end}]", nothing)
	Terminated  = three[span, why, span]("terminated", "SIGTERM after {after}, {end} {later} later", "{after}后发送 SIGTERM，再过 {later} {end}", nothing)
	RestKilled  = one[span]("rest_killed", "SIGKILL after {after} to what it left behind", "{after}后向其遗留进程发送 SIGKILL", output)
	LeftTerm    = one[span]("left_terminated", "what it left behind was ended: SIGTERM {later} later", "其遗留进程已被结束：{later}后发送 SIGTERM", output)
	LeftKilled  = one[span]("left_killed", "what it left behind was ended: SIGKILL {later} later", "其遗留进程已被结束：{later}后发送 SIGKILL", output)
	LeftBoth    = two[span, span]("left_terminated_killed", "what it left behind was ended: SIGTERM {term} later, SIGKILL {kill} later", "其遗留进程已被结束：{term}后发送 SIGTERM，{kill}后发送 SIGKILL", output)
	NoRoom      = one[Words]("no_room", "the machine has no room to start it: {error}", "机器没有资源启动它：{error}", machine)
	NoDirectory = two[string, Words]("no_directory", "cannot enter the directory {directory}: {error}", "无法进入目录 {directory}：{error}", change)
	NoUser      = two[string, Words]("no_user", "cannot become user {user}: {error}", "无法切换为用户 {user}：{error}", config)
)

// Ends of requests.
var (
	RequestFailed  = two[string, Words]("request_failed", "{request}: {error}", "{request}：{error}", service)
	NoConnection   = two[string, span]("no_connection", "{request}: no connection within {within}", "{request}：{within}内未能连接", service)
	NotAnswered    = two[why, string]("not_answered", "{why}: {request} was not answered", "{why}：{request} 没有应答", service)
	PartlyAnswered = two[why, string]("partly_answered", "{why}: {request} was not answered completely", "{why}：{request} 的应答不完整", service)
	AnswerTooLong  = two[string, int]("answer_too_long", "{request}: the answer is longer than {most} bytes", "{request}：应答超过 {most} 字节", service)
	AnswerBroken   = three[string, int, Words]("answer_broken", "{request}: after {n} bytes of the answer: {error}", "{request}：收到 {n} 字节应答后：{error}", service)
	WrongStatus    = two[string, []string]("wrong_status", "status {status}, expected {expected}", "状态 {status}，预期 {expected}", service)
	NoRedirects    = one[why]("no_redirects", "{why}; redirects: 0 follows none", "{why}；redirects: 0 不跟随重定向", change)
	BadPattern     = one[string]("bad_pattern", `match "{pattern}" is not a regular expression`, `match "{pattern}" 不是正则表达式`, change)
	AnswerNoMatch  = one[string]("answer_unmatched", `the answer does not match "{pattern}"`, `应答不匹配 "{pattern}"`, service)
	BeginNoMatch   = two[int, string]("answer_begin_unmatched", `the first {n} bytes of the answer do not match "{pattern}"`, `应答的前 {n} 字节不匹配 "{pattern}"`, service)
	JSONTooLong    = one[int]("json_too_long", "the answer is longer than {most} bytes, so its JSON is not read", "应答超过 {most} 字节，因此不读取其 JSON", service)
	NotJSON        = one[Words]("not_json", "the answer is not JSON: {error}", "应答不是 JSON：{error}", service)
	NoField        = two[string, string]("no_field", `the answer has no {field}, expected "{expected}"`, `应答没有 {field}，预期 "{expected}"`, service)
	WrongField     = three[string, Words, string]("wrong_field", `the answer has {field}: "{value}", expected "{expected}"`, `应答的 {field} 为 "{value}"，预期 "{expected}"`, service)
	ValueTooLong   = two[int, int]("value_too_long", "the answer has {n} bytes, and the result of a step at most {most}", "应答有 {n} 字节，而步骤的结果最多 {most}", service)
	ValueNotJSON   = none("value_not_json", "the answer is not JSON, though its Content-Type says so", "应答不是 JSON，尽管其 Content-Type 如此声明", service)
	NoRequest      = none("no_request", "the job has no request", "任务没有请求", change)
	NoCallbackURL  = none("no_callback_url", "this node has no http.callback_url in its configuration, which run.http.callback needs", "该节点的配置没有 run.http.callback 所需的 http.callback_url", config)
)

// Ends of containers.
var (
	EngineAway       = one[Words]("engine_away", "the container engine does not answer: {error}", "容器引擎没有应答：{error}", engines)
	EngineLost       = one[Words]("engine_lost", "the container engine was away for too long, and the container may still run: {error}", "容器引擎失联过久，容器可能仍在运行：{error}", fences)
	EngineRefused    = one[Words]("engine_refused", "the container engine refuses the container: {error}", "容器引擎拒绝该容器：{error}", change)
	NotOnNode        = two[string, string]("container_not_allowed", "{what} is not allowed on this node: {setting} in its configuration does not list it", "该节点不允许 {what}：其配置中的 {setting} 未列出", config)
	NoImage          = one[string]("no_image", "the engine does not have the image {image}, and run.container.pull is never", "引擎没有镜像 {image}，且 run.container.pull 为 never", change)
	PullFailed       = two[string, Words]("pull_failed", "the image {image} cannot be pulled: {error}", "无法拉取镜像 {image}：{error}", images)
	LoginUnknown     = one[string]("registry_secret", "the secret {secret} has no login for the registry of the image: it must be USER:PASSWORD, or a config.json with the registry", "密钥 {secret} 中没有该镜像仓库的登录信息：应为 USER:PASSWORD，或包含该仓库的 config.json", change)
	ContainerGone    = none("container_gone", "the container was removed by another program", "容器已被其他程序删除", output)
	ContainerUnbegun = none("container_unbegun", "its node ended before the container had started", "节点在容器启动之前退出", machine)
	KilledByOthers   = one[why]("killed_by_others", "{why}: SIGKILL that Belfry did not send", "{why}：收到并非 Belfry 发送的 SIGKILL", output)
	LikelyMemory     = two[why, string]("likely_over_memory", "{why}: SIGKILL that Belfry did not send, probably because it used more memory than {limit}", "{why}：收到并非 Belfry 发送的 SIGKILL，可能使用的内存超过 {limit}", limits)
	SignalAnswered   = four[string, span, why, span]("stop_signal", "{signal} after {after}, {end} {later} later", "{after}后发送 {signal}，再过 {later} {end}", nothing)
	SignalKilled     = three[string, span, span]("stop_signal_killed", "{signal} after {after}, SIGKILL {later} later", "{after}后发送 {signal}，再过 {later}发送 SIGKILL", nothing)
)

// Ends of Jobs of Kubernetes, and why their pods wait.
var (
	KubeNotAllowed = three[string, string, string]("kube_not_allowed", "{what} is not allowed in the cluster {cluster}: {setting} in the configuration does not list it", "集群 {cluster} 不允许 {what}：配置中的 {setting} 未列出", config)
	KubeRefused    = two[string, Words]("kube_refused", "the cluster {cluster} refuses the Job: {error}", "集群 {cluster} 拒绝该 Job：{error}", change)
	KubeForeign    = one[string]("kube_foreign", "the cluster has a Job {job} that Belfry did not make", "集群中有并非由 Belfry 创建的 Job {job}", change)
	KubeUnknown    = one[string]("kube_unknown", "no cluster {cluster} is in kubernetes.clusters of the configuration of this node", "该节点配置的 kubernetes.clusters 中没有集群 {cluster}", config)
	KubeTooLong    = two[int, int]("kube_too_long", "the Job has {n} bytes, and at most {most} are kept", "该 Job 有 {n} 字节，而最多保存 {most}", change)
	KubeAway       = two[string, Words]("kube_away", "the cluster {cluster} does not answer: {error}", "集群 {cluster} 没有应答：{error}", clusters)
	KubeAwayAtEnd  = three[why, string, Words]("kube_away_at_end", "{why}; the cluster {cluster} does not answer, and may still run the pod: {error}", "{why}；集群 {cluster} 没有应答，Pod 可能仍在运行：{error}", clusters)
	KubeUnseen     = one[string]("kube_unseen", "the Job {job} was never seen, and may have run and been removed while no node reached the cluster", "从未见到 Job {job}，它可能在没有节点连接到集群期间运行并被移除", fences)
	KubeWaits      = two[string, Words]("kube_waits", "the pod waits: {why}[: {message}]", "Pod 在等待：{why}[：{message}]", clusters)
	KubeDeleted    = one[string]("kube_deleted", "the Job {job} was deleted by another program", "Job {job} 已被其他程序删除", output)
	KubePodDeleted = none("kube_pod_deleted", "the pod was deleted by another program", "Pod 已被其他程序删除", output)
	KubeExit       = two[int, string]("kube_exit", "exit status {status} of the container {container}", "容器 {container} 的退出状态为 {status}", output)
	KubeOOM        = two[why, string]("kube_oom", "{why}: OOMKilled, it used more memory than {limit}", "{why}：OOMKilled，使用的内存超过 {limit}", limits)
	KubeEvicted    = one[Words]("kube_evicted", "the pod was evicted: {message}", "Pod 被驱逐：{message}", clusters)
	KubeNodeLost   = one[Words]("kube_node_lost", "the node of the cluster that ran the pod was lost: {message}", "运行该 Pod 的集群节点已失联：{message}", clusters)
	KubeDeadline   = one[span]("kube_deadline", "it took longer than its timeout of {timeout}, and the cluster ended it", "耗时超过超时设置（{timeout}），集群已将其结束", timing)
	KubeTimeout    = one[span]("kube_timeout", "it took longer than its timeout of {timeout}", "耗时超过超时设置（{timeout}）", timing)
	KubeFailed     = two[string, Words]("kube_failed", "the Job failed: {why}[: {message}]", "Job 失败：{why}[：{message}]", output)
)

// Ends at executors of XXL-JOB.
var (
	NoGlue         = none("xxl_no_glue", "this node sends no code to executors: xxl.glue of its configuration allows that", "该节点不向执行器发送代码：其配置的 xxl.glue 可允许", config)
	ExecutorGone   = two[string, string]("xxl_executor_gone", "the run was started for the executor {executor}, which is not registered in the group {group} any more", "该运行指定了执行器 {executor}，而它已不在组 {group} 中注册", change)
	NoExecutors    = one[string]("xxl_no_executors", "no executor of the group {group} is registered or listed", "组 {group} 没有已注册或列出的执行器", service)
	NoneReached    = two[string, []string]("xxl_none_reached", "no executor of the group {group} can be reached: {passed}", "组 {group} 的执行器均无法连接：{passed}", service)
	NoneIdle       = two[string, []string]("xxl_none_idle", "no executor of the group {group} is idle: {passed}", "组 {group} 没有空闲的执行器：{passed}", wait)
	MoreUntried    = two[why, int]("xxl_more_untried", "{why}, and {n} more were not tried", "{why}，另有 {n} 个未尝试", service)
	RunsAlready    = two[string, Words]("xxl_runs_already", "the executor {executor} runs the job already: {message}", "执行器 {executor} 已在运行该任务：{message}", overlap)
	RefusedSince   = two[span, why]("xxl_refused_since", "it waited for {span}: {why}", "等待了 {span}：{why}", overlap)
	Refused        = two[string, Words]("xxl_refused", "the executor {executor} has refused it: {message}", "执行器 {executor} 已拒绝：{message}", service)
	LateSuccess    = two[span, span]("xxl_late_success", "the executor reported success {after} after it was sent, later than the timeout of {timeout}", "执行器在发送 {after}后报告成功，晚于超时设置（{timeout}）", timing)
	ReportedCode   = one[int]("xxl_reported_code", "the executor reported code {status}", "执行器报告了代码 {status}", output)
	NoCode         = none("xxl_no_code", "the executor reported a result without a code", "执行器报告的结果没有代码", output)
	OverTimeout    = one[span]("xxl_over_timeout", "it took longer than its timeout of {timeout}, and the executor did not end it", "耗时超过超时设置（{timeout}），且执行器未结束它", timing)
	Unregistered   = three[string, span, Words]("xxl_unregistered", "the executor {executor} is not registered any more, and was not reached for {span}: {error}", "执行器 {executor} 已不再注册，且 {span}内未能连接：{error}", service)
	Unreached      = three[string, span, Words]("xxl_unreached", "the executor {executor} was not reached for {span}: {error}", "执行器 {executor} 在 {span}内未能连接：{error}", service)
	Overtaken      = two[string, span]("xxl_overtaken", "the executor {executor} has ended a later run of the job, and has not reported this one for {span}", "执行器 {executor} 已结束该任务较晚的一次运行，而 {span}内未报告本次", service)
	Unknown        = two[string, span]("xxl_unknown", "the executor {executor} does not run it, and has not reported its end for {span}", "执行器 {executor} 没有运行它，且 {span}内未报告其结束", service)
	KillUnanswered = three[why, string, Words]("xxl_kill_unanswered", "{why}; the executor {executor} did not answer, and may still run it: {error}", "{why}；执行器 {executor} 没有应答，可能仍在运行它：{error}", service)
	KillRefused    = three[why, string, Words]("xxl_kill_refused", "{why}; the executor {executor} answered: {message}", "{why}；执行器 {executor} 应答：{message}", service)
)
