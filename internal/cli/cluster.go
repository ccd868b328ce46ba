package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/internal/remote/kube"
)

// clusterFlags select the cluster to read.
type clusterFlags struct {
	use                      bool
	file, context, namespace string
}

// flags adds the flags that select a cluster.
func (f *clusterFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	addWord(flags, &f.file, "kubeconfig", "", "FILE", "kubeconfig of the cluster; else KUBECONFIG, ~/.kube/config")
	addWord(flags, &f.context, "kube-context", "", "NAME", "context of the kubeconfig; default: the current one")
	addWord(flags, &f.namespace, "kube-namespace", "", "NAME", "namespace in the cluster; default: that of the context")
}

// cronJobs reads the CronJobs of a namespace of a cluster. An undo takes only its name.
func (f *clusterFlags) cronJobs(ctx context.Context, env Env, undo bool) ([]cronTable, *kube.Client, error) {
	c, err := f.connect(env)
	if c == nil {
		return nil, nil, err
	}
	name := fmt.Sprintf("namespace %s of %s", c.Namespace, c.Context)
	if undo { // also by someone who can no longer sign in
		return []cronTable{{name: name}}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	text, err := c.CronJobs(ctx, c.Namespace)
	return []cronTable{{name: name, text: text}}, c, refusedByCluster(err)
}

// refusedByCluster is the failure of a call to a cluster.
func refusedByCluster(err error) error {
	var status *kube.Status
	switch {
	case err == nil:
		return nil
	case errors.As(err, &status):
		return failed("%s", oneLine(err.Error()))
	}
	return &failure{code: ExitUnreachable, message: err.Error()}
}

// connect reads the kubeconfig. With an error there is a client that can only be named, or none.
func (f *clusterFlags) connect(env Env) (*kube.Client, error) {
	name := f.file
	if name == "" {
		// Of several files the first one is used.
		name, _, _ = strings.Cut(env.Getenv("KUBECONFIG"), string(os.PathListSeparator))
	}
	if name == "" {
		name = filepath.Join(homeOf(env), ".kube", "config")
	}
	c, err := kube.Open(env.path(name), name, f.context)
	if c != nil {
		c.Namespace = cmp.Or(f.namespace, c.Namespace)
	}
	var missing *fs.PathError
	switch {
	case err == nil:
		return c, nil
	case c == nil && errors.As(err, &missing):
		return nil, unreadable(name, err).withHint("--kubeconfig names another one; kubectl get cronjobs -o yaml | belfry kubernetes import - needs none")
	case errors.Is(err, kube.ErrSignIn):
		return c, failed("%v", err).withHint("kubectl get cronjobs -o yaml | belfry kubernetes import - needs no sign-in")
	}
	return c, failed("%v", err)
}
