package cli

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/cli/kubernetes"
	"github.com/belfry-cron/belfry/internal/remote/kube"
	"github.com/belfry-cron/belfry/internal/server/config"
)

// cronJobChange are CronJobs that an import suspends in the cluster.
type cronJobChange struct {
	cluster *kube.Client
	// names are the CronJobs that run, by the names of their jobs, which are the same.
	names []string
}

// prepare makes the import create jobs as paused while their CronJobs run: each is resumed right after its
// CronJob is suspended.
func (c *cronJobChange) prepare(tables []cronTable) error {
	for i := range tables {
		taken, err := kubernetes.Taken(tables[i].text)
		if err != nil {
			return failed("%v", err)
		}
		for _, line := range tables[i].read() {
			for k := range line.Documents {
				if j := line.Documents[k].Job; !j.Paused && taken[j.Name] == "" {
					j.Paused = true
					c.names = append(c.names, j.Name)
				}
			}
		}
	}
	return nil
}

// suspend suspends each CronJob, and then resumes its job. Repeated after an interruption it does what is
// left.
func (c *cronJobChange) suspend(ctx context.Context, env Env, server *remote) error {
	for i, name := range c.names {
		patch := takenPatch(true, server.namespace+"/"+name)
		if err := c.cluster.PatchCronJob(ctx, c.cluster.Namespace, name, patch); err != nil {
			return partly(refusedByCluster(err), i, len(c.names))
		}
		if _, err := server.Resume(ctx, server.namespace, name, client.ResumeRequest{}); err != nil {
			return partly(server.refused(err), i, len(c.names))
		}
	}
	return write(env, []byte(counted(len(c.names), "CronJob")+" suspended, and the jobs resumed\n"))
}

// partly says how far a change has come.
func partly(err error, done, of int) error {
	return failed("%v; %d of %d are taken over", err, done, of).withHint("repeat the command, or take all back with belfry kubernetes give-back")
}

// takenPatch suspends a CronJob and notes the job that takes its place, or reverses that.
func takenPatch(suspend bool, full string) []byte {
	note := any(full)
	if !suspend {
		note = nil
	}
	text, _ := json.Marshal(map[string]any{ // it always encodes
		"metadata": map[string]any{"annotations": map[string]any{kubernetes.TakenAnnotation: note}},
		"spec":     map[string]any{"suspend": suspend},
	})
	return text
}

func newKubernetesGiveBack(env Env) *cobra.Command {
	var (
		live       = clusterFlags{use: true}
		connection config.Asked
		yes        bool
	)
	cmd := &cobra.Command{
		Use:   "give-back [flags]",
		Short: "Pause the jobs that took over CronJobs, and let the CronJobs run again",
		Long: `Pause each job that took the place of a CronJob by belfry kubernetes import --take-over,
and then end the suspension of its CronJob. CronJobs that were suspended before stay
suspended. The command can be repeated, and works after an import that broke off. The
jobs remain, paused; belfry kubernetes import --undo deletes them.`,
		Example: "belfry kubernetes give-back --kube-namespace shop",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return giveCronJobsBack(cmd.Context(), env, &live, connection, yes)
		},
	}
	live.flags(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "give back without asking")
	addServer(cmd, &connection)
	return cmd
}

func giveCronJobsBack(ctx context.Context, env Env, live *clusterFlags, connection config.Asked, yes bool) error {
	server, err := connect(env, connection)
	if err != nil {
		return err
	}
	// It selects no job, and needs the same rights as the rest: a lack shows before anything is changed.
	none := 0
	if _, err := server.Bulk(ctx, client.Bulk{Action: client.BulkPause, Labels: map[string]string{kubernetes.TakenAnnotation: "none"}, Expect: &none}); err != nil {
		return server.refused(err)
	}
	cluster, err := live.connect(env)
	if err != nil {
		return err
	}
	defer cluster.Close()
	text, err := cluster.CronJobs(ctx, cluster.Namespace)
	if err != nil {
		return refusedByCluster(err)
	}
	taken, err := kubernetes.Taken(text)
	if err != nil {
		return failed("%v", err)
	}
	if len(taken) == 0 {
		return write(env, []byte("no CronJob of the namespace "+cluster.Namespace+" is taken over\n"))
	}
	if err := agree(env, yes, "pause %s in Belfry, and let the CronJobs of the namespace %s run", counted(len(taken), "job"), cluster.Namespace); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(taken))
	for _, name := range names {
		namespace, of, _ := strings.Cut(taken[name], "/")
		_, err := server.Pause(ctx, namespace, of, client.PauseRequest{Reason: "given back to the CronJob " + cluster.Namespace + "/" + name})
		if err != nil && !client.IsType(err, client.TypeNotFound) {
			return server.refused(err)
		}
		if err := cluster.PatchCronJob(ctx, cluster.Namespace, name, takenPatch(false, "")); err != nil && !kube.IsNotFound(err) {
			return refusedByCluster(err)
		}
	}
	return write(env, []byte(counted(len(names), "CronJob")+" given back, and the jobs paused\n"))
}
