//go:build servers

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/node/secret"
	"github.com/belfry-cron/belfry/test/servers"
)

func TestServersAndWorkersShareADatabaseAndItsKeys(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "cluster")
	c.secrets["belfry-store"] = map[string]string{"url": servers.StartPostgres(t).URL()}
	c.secrets["belfry-key"] = map[string]string{"secret.key": secret.NewKey(time.Now())}
	one := c.start("StatefulSet/belfry", "belfry-0")
	one.ready()
	two := c.start("StatefulSet/belfry", "belfry-1")
	worker := c.start("Deployment/belfry-general", "belfry-general-1")
	two.ready()
	worker.ready()
	one.must("what no one sees\n", "secret", "set", "word")
	one.must("name: whisper\nrun:\n  shell: test \"$WORD\" = 'what no one sees' && echo it is right\n  env: {WORD: '{{ .Secret.word }}'}\n", "apply", "--yes", "-f", "-")
	if out := one.must("", "job", "run", "whisper", "--logs"); !strings.Contains(out, "it is right") {
		t.Errorf("the job prints %q", out)
	}
	if out := one.must("", "run", "list", "-o", "wide"); !strings.Contains(out, "belfry-general-1") {
		t.Errorf("the runs are %s", out)
	}
	one.wait("the node list whole", func() error {
		out, err := one.exec("", "node", "list")
		for _, name := range []string{"belfry-0", "belfry-1", "belfry-general-1"} {
			if err == nil && !strings.Contains(out, name) {
				err = fmt.Errorf("%s is missing in %s", name, out)
			}
		}
		return err
	})
}
