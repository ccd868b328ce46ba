package reason

// What open steps of a flow wait for, or where they run.
var (
	WaitsForSteps   = one[[]string]("waits_for_steps", "waits for {steps}", "等待 {steps}", wait)
	WaitsForOthers  = none("waits_for_others", "waits for the end of all other steps", "等待所有其他步骤结束", wait)
	WaitsForRoom    = one[int]("waits_for_room", "waits for room: {n} {n:step|steps} of the flow may run at once", "等待空位：流程最多同时运行 {n} 个步骤", wait)
	ItemWaits       = none("item_waits_for_room", "waits for room: no more items of the step may run at once", "等待空位：该步骤已达同时运行的项目上限", wait)
	ItemsOver       = three[int, int, int]("items_over", "{over} of {all} items have ended, {open} {open:is|are} open", "{all} 个项目中 {over} 个已结束，{open} 个进行中", wait)
	WaitsForRun     = two[id, string]("waits_for_run", "waits for run {run} of {job}", "等待 {job} 的运行 {run}", wait)
	RunsOnNode      = one[string]("runs_on_node", "runs on node {node}", "在节点 {node} 上运行", wait)
	WaitsForPerson  = three[at, span, why]("waits_for_person", "waits for a person since {since}[, for {limit} at most][: {why}]", "自 {since} 起等待人工审批[，最长 {limit}][：{why}]", person)
	WaitsForSignal  = three[string, at, span]("waits_for_signal", "waits for signal {signal} since {since}[, for {limit} at most]", "自 {since} 起等待信号 {signal}[，最长 {limit}]", wait)
	WaitsForInstant = one[at]("waits_for_instant", "waits for an instant since {since}", "自 {since} 起等待指定时刻", wait)
	WaitsForSpan    = two[span, at]("waits_for_span", "waits for {span} since {since}", "自 {since} 起等待 {span}", wait)
)
