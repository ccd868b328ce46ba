package job

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/belfry-cron/belfry/internal/phrase"
)

// otherWords are words of other programs for fields of jobs, with their paths.
var otherWords = map[string]string{
	"cwd": "run.dir", "workdir": "run.dir", "working_dir": "run.dir", "working_directory": "run.dir", "workingDir": "run.dir", "chdir": "run.dir", "directory": "run.dir",
	"environment": "run.env", "env_vars": "run.env", "vars": "run.env", "run_as": "run.user", "username": "run.user", "owner": "run.user",
	"command": "run.shell", "cmd": "run.shell", "bash": "run.shell", "sh": "run.shell", "script": "run.shell", "exec": "run.shell", "executor": "run", "request": "run.http", "steps": "run.flow",
	"retries": "policy.retry", "max_retries": "policy.retry", "retry_count": "policy.retry", "attempts": "policy.retry", "backoffLimit": "policy.retry",
	"time_limit": "policy.timeout", "timeout_seconds": "policy.timeout", "activeDeadlineSeconds": "policy.timeout", "startingDeadlineSeconds": "policy.late_by",
	"deadline": "policy.late_by", "grace": "policy.kill_grace", "concurrency": "policy.overlap", "concurrencyPolicy": "policy.overlap", "allow_overlap": "policy.overlap",
	"forbid_overlap": "policy.overlap", "singleton": "policy.overlap", "catchup": "policy.missed", "misfire": "policy.missed",
	"history": "policy.keep", "retention": "policy.keep",
	"tz": "schedule.timezone", "time_zone": "schedule.timezone", "timeZone": "schedule.timezone", "zone": "schedule.timezone", "location": "schedule.timezone",
	"interval": "schedule.every", "crontab": "schedule.cron", "expression": "schedule.cron", "cron_expression": "schedule.cron", "date": "schedule.at", "time": "schedule.at",
	"depends_on": "schedule.on", "dependencies": "schedule.on", "after": "schedule.on", "needs": "schedule.on", "parent_job": "schedule.on", "runs": "schedule.max_runs",
	"enabled": "paused", "disabled": "paused", "suspend": "paused", "active": "paused", "tags": "labels", "comment": "description", "parameters": "params",
	"docker": "run.container", "image": "run.container", "pod": "run.kubernetes", "k8s": "run.kubernetes",
	"host": "place.labels", "hostname": "place.labels", "node": "place.labels", "nodeName": "place.labels", "nodes": "place.labels", "hosts": "place.labels", "node_selector": "place.labels", "nodeSelector": "place.labels",
}

// channelWords are words of other programs for what a channel does here.
var channelWords = []string{"notify", "notification", "notifications", "channel", "channels", "on_failure", "on_error", "on_success", "alert", "alerts", "email", "mailto", "MAILTO"}

// otherValues are words of other programs for values of fields.
var otherValues = map[string]string{
	"forbid": string(OverlapSkip), "disallow": string(OverlapSkip), "enqueue": string(OverlapQueue), "concurrent": string(OverlapAllow), "parallel": string(OverlapAllow),
	"skip": string(MissedNone), "catchup": string(MissedAll), "catch_up": string(MissedAll), "once": string(MissedLatest), "run_once": string(MissedLatest),
}

// hintOfValue suggests the value that a word of another program means; none if it means none of them.
func hintOfValue(written string, values []string) phrase.Text {
	if written == "CronJob" && slices.Contains(values, string(KindJob)) {
		return phrase.ImportCronJobs
	}
	if meant := otherValues[strings.ToLower(written)]; slices.Contains(values, meant) {
		return phrase.DidYouMean.Of(quote(meant))
	}
	return phrase.Text{}
}

// hintOfMapping suggests the mapping that a plain text in its place means; none if it is not known.
func hintOfMapping(t reflect.Type, n *node) phrase.Text {
	switch {
	case n.kind != scalarNode:
	case t == reflect.TypeFor[Retry]():
		if _, err := strconv.Atoi(n.text); err == nil {
			return phrase.DidYouMeanPath.Of("{attempts: " + n.text + "}")
		}
	case t == reflect.TypeFor[HTTP]():
		return phrase.DidYouMeanPath.Of("{url: " + strconv.Quote(n.text) + "}")
	}
	return phrase.Text{}
}

// jobPlaces are the structs of a job in which fields are searched, with their paths.
var jobPlaces = map[reflect.Type]string{
	reflect.TypeFor[Job](): "", reflect.TypeFor[Schedule](): "schedule", reflect.TypeFor[RunSpec](): "run", reflect.TypeFor[Place](): "place", reflect.TypeFor[Policy](): "policy",
	reflect.TypeFor[HTTP](): "run.http", reflect.TypeFor[Shell](): "run.shell", reflect.TypeFor[Retry](): "policy.retry",
}

// fieldPlaces returns the paths of the fields of a job; of those with one name, the outermost.
var fieldPlaces = sync.OnceValue(func() map[string]string {
	places := map[string]string{}
	for t, at := range jobPlaces {
		for _, f := range fieldsOf(t) {
			if strings.HasPrefix(f.doc, "Read-only.") {
				continue
			}
			full := strings.TrimPrefix(at+"."+f.name, ".")
			if old, there := places[f.name]; !there || depth(full) < depth(old) || depth(full) == depth(old) && full < old {
				places[f.name] = full
			}
		}
	}
	return places
})

func depth(path string) int { return strings.Count(path, ".") }

// hintOfPlace suggests the place of a known field of jobs, for a name that its struct lacks; none
// if it is unknown. Steps of flows have other places.
func hintOfPlace(name string, in reflect.Type, written string) phrase.Text {
	if in == reflect.TypeFor[Channel]() && name == "events" {
		return phrase.BelongsIn.Of(quote(name), "rules")
	}
	here, known := jobPlaces[in]
	if !known || strings.HasPrefix(written, "run.flow") {
		return phrase.Text{}
	}
	if in == reflect.TypeFor[Job]() && name == "jobs" {
		return phrase.EachDocument
	}
	if slices.Contains(channelWords, name) {
		return phrase.ChannelsChoose
	}
	full, other := otherWords[name]
	if !other {
		if full = fieldPlaces()[name]; full == "" {
			return phrase.Text{}
		}
	}
	parent, field := "", full
	if i := strings.LastIndex(full, "."); i >= 0 {
		parent, field = full[:i], full[i+1:]
	}
	switch {
	case parent == here && other:
		return phrase.DidYouMean.Of(quote(field))
	case parent == "" && other:
		return phrase.DidYouMeanTop.Of(quote(field))
	case parent == "":
		return phrase.BelongsTop.Of(quote(field))
	case other:
		return phrase.DidYouMeanPath.Of(full)
	}
	return phrase.BelongsIn.Of(quote(field), parent)
}
