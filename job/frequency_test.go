package job_test

import (
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
)

func TestTheDefaultOfLostAfterGoesByTheDistanceOfOccurrences(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`schedule: {cron: "* * * * *"}`:                                         60 * time.Second,
		`schedule: {cron: "@hourly"}`:                                           60 * time.Second,
		`schedule: {cron: "0 * * * * *"}`:                                       60 * time.Second,
		`schedule: {cron: "30 0 2 * * *"}`:                                      60 * time.Second,
		`schedule: {cron: "H * * * * *"}`:                                       60 * time.Second,
		`schedule: {cron: ["0 0 * * * *", "30 30 * * * *"]}`:                    60 * time.Second,
		`schedule: {cron: "* * * * * *"}`:                                       20 * time.Second,
		`schedule: {cron: "CRON_TZ=Asia/Shanghai */30 * 3 1 1 * 2027"}`:         20 * time.Second,
		`schedule: {cron: ["0 0 * * * *", "30 0 * * * *"]}`:                     20 * time.Second,
		`schedule: {cron: "@every 59s"}`:                                        20 * time.Second,
		`schedule: {cron: "@every 1m"}`:                                         60 * time.Second,
		`schedule: {every: 1s}`:                                                 20 * time.Second,
		`schedule: {every: 1m}`:                                                 60 * time.Second,
		`schedule: {after_end: 5s}`:                                             20 * time.Second,
		`schedule: {after_end: 5m}`:                                             60 * time.Second,
		`schedule: {at: ["2030-01-01T00:01:00Z", "2030-01-01T00:00:00Z"]}`:      60 * time.Second,
		`schedule: {at: ["2030-01-01T00:00:59Z", "2030-01-01T00:00:00Z"]}`:      20 * time.Second,
		`schedule: {at: ["2030-01-01T00:00:00Z"]}`:                              60 * time.Second,
		`schedule: {boot: true}`:                                                60 * time.Second,
		`policy: {priority: 1}`:                                                 60 * time.Second,
		`schedule: {every: 1s}, policy: {kill_grace: 0s}`:                       20 * time.Second,
		`schedule: {every: 1s}, policy: {kill_grace: 30s}`:                      39 * time.Second,
		`schedule: {every: 1m}, policy: {kill_grace: 10m}`:                      10*time.Minute + 9*time.Second,
		`schedule: {every: 1s}, policy: {lost_after: 3m}`:                       3 * time.Minute,
		`schedule: {cron: "no cron", timezone: Nowhere}, policy: {priority: 1}`: 60 * time.Second,
	} {
		j := decode(t, "a.yaml", "{name: a, run: {shell: x}, "+text+"}")[0].Job
		filled := j.WithDefaults(job.Defaults{})
		if got := time.Duration(filled.Policy.LostAfter); got != want {
			t.Errorf("%s: lost_after is %s, want %s", text, got, want)
		}
		if again := filled.WithDefaults(job.Defaults{}); again.Policy.LostAfter != filled.Policy.LostAfter {
			t.Errorf("%s: filled in twice it is %s", text, again.Policy.LostAfter)
		}
	}
	j := decode(t, "a.yaml", "{name: a, run: {shell: x}, schedule: {every: 1s}}")[0].Job
	if got := j.WithDefaults(job.Defaults{Policy: job.Policy{LostAfter: job.Duration(time.Hour)}}).Policy.LostAfter; got != job.Duration(time.Hour) {
		t.Errorf("with a default of the server lost_after is %s", got)
	}
}
