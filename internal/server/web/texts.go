package web

// scriptTexts are the texts that scripts show.
var scriptTexts = []string{
	"js.in", "js.ago", "js.units", "js.selected", "js.stale", "js.copied", "js.nothing", "js.hits", "js.left_out", "js.left_out_bytes", "js.lines", "js.cut",
	"js.page", "js.job", "js.action", "js.behind", "js.table", "js.checking", "js.matching",
	"nav.overview", "nav.jobs", "nav.runs", "nav.timeline", "nav.flows", "nav.nodes", "executors.title", "nav.notifications", "nav.audit", "nav.settings", "shared.title", "wall.title", "jobs.new", "jobs.import",
	"settings.theme", "settings.system", "settings.light", "settings.dark", "settings.lang", "job.run_now", "job.pause", "job.resume", "job.edit", "job.schedule", "job.backfill",
	"run.retry", "run.cancel", "overview.approve", "overview.snooze",
}
