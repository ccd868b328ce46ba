package main

const moving = "who moves in loses no run"

// roads are faults on the ways from other schedulers and between machines and stores.
var roads = []fault{
	{moving, "lines are commented out whose jobs no node may run", "internal/cli/crontabapply.go",
		"if len(barred) == 0 {", "if true {",
		"./internal/cli", "^TestServerScripts$/^crontab_outage$"},
	{moving, "an import creates jobs of lines that it leaves in place", "internal/cli/crontabapply.go",
		"if !slices.Contains(barred, i) || would.Results[i].Result != client.Created {", "if i >= 0 || slices.Contains(barred, i) {",
		"./internal/cli", "^TestServerScripts$/^crontab_outage$"},
	{moving, "a run whose secrets cannot be read does not say so", "internal/node/worker/secrets.go",
		"executor.Result{Unstarted: true, Reason: reason.SecretsFailed.Of(reason.Words(err.Error()))}", "executor.Result{Unstarted: true}",
		"./internal/cli", "^TestServerScripts$/^secretkey$"},
	{moving, "a restore does not name the secrets that cannot be opened", "internal/node/secret/keeper.go",
		"return phrase.SecretUnopened.Of(u.First, phrase.Words(u.Why))", "return phrase.Text{}",
		"./internal/cli", "^TestServerScripts$/^backup_keys$"},
	{moving, "a copied job is written as changed now", "internal/decide/engine/document.go",
		"if j.News() && !j.adopted {", "if j.News() {",
		"./internal/cli/storecopy", "^TestCopyTakesEverythingAlong$"},
	{moving, "a take-over is not taken back without executors", "internal/cli/xxltakeover.go",
		"if !c.hasExecutors {\n\t\tc.env.tell(", "if !c.hasExecutors {\n\t\treturn failed(\"no\")\n\t\tc.env.tell(",
		"-tags servers ./internal/cli/xxltables", "^TestGiveBackNeedsNoExecutor$"},
	{moving, "the image that the guide to Kubernetes installs has no shell", "packaging/image.go",
		"\tif bare {\n\t\tfiles, err := r.bareLayer", "\tif true {\n\t\tfiles, err := r.bareLayer",
		"-C packaging .", "^TestTheImageRunsCommandsAsItsUser$"},
	{moving, "a node without a shell does not say so", "internal/server/health/health.go",
		"case !shell.FindsShell(c.Shell.Path):", "case false:",
		"-C packaging .", "^TestTheBareImageServesAndSaysThatItHasNoShell$"},
	{moving, "attention forgets when a job began to fail", "internal/server/service/beginnings.go",
		"if len(ended) < inRowMax || lastSuccess(ended) != nil {", "if true {",
		"./internal/server/service", "^TestFailuresInARowAreOneNumber$"},
	{moving, "a message proposes a number that the next one refuses", "job/decode.go",
		"n.describe()), hintOfMapping(v.Type(), n))", "n.describe()))",
		"./job", "^TestAFieldInTheWrongPlaceIsSentToItsOwn$"},
}
