package doctor

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/store/redis"
)

func TestDoctorNamesReplicasThatNoStepWaitsFor(t *testing.T) {
	for name, c := range map[string]struct {
		about redis.About
		do    string
	}{
		"no replica":             {redis.About{AOF: true, Sync: "always"}, ""},
		"replicas without wait":  {redis.About{AOF: true, Sync: "always", Replicas: 2, Least: 1}, "add wait=1"},
		"replicas with wait":     {redis.About{AOF: true, Sync: "always", Replicas: 2, Wait: 1}, ""},
		"first what a crash may": {redis.About{AOF: true, Sync: "everysec", Replicas: 2}, "appendfsync"},
	} {
		f := redisOf(Finding{}, c.about, nil)
		if (f.Status == Well) != (c.do == "") || !strings.Contains(f.Do, c.do) {
			t.Errorf("%s: %s, %q, do %q", name, f.Status, f.Found, f.Do)
		}
	}
}
