package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/cli/crontab"
	"github.com/belfry-cron/belfry/internal/cli/dkron"
	"github.com/belfry-cron/belfry/internal/cli/kubernetes"
	"github.com/belfry-cron/belfry/internal/remote/kube"
	"github.com/belfry-cron/belfry/job"
)

// origin is another scheduler whose jobs are imported. They go the road of crontab lines: one report,
// one plan, one way to apply and to undo.
type origin struct {
	name  string // name in the mark of the jobs
	what  string // it has
	still string // what still runs the jobs, for a message after applying them
	read  func(text string) ([]crontab.Line, error)
}

// foreignFlags adds the flags that all imports have.
func (ask *importFlags) foreignFlags(cmd *cobra.Command, zone string) {
	f := cmd.Flags()
	addWord(f, &ask.zone, "tz", "", "ZONE", zone)
	f.BoolVar(&ask.apply, "apply", false, "create and update the jobs on the server")
	f.BoolVar(&ask.skip, "skip-errors", false, "apply the others where some make no job")
	addWord(f, &ask.owner, "owner", "", "NAME", "mark of the jobs; default: by where they are from")
	f.BoolVar(&ask.prune, "prune", false, "with --apply, delete jobs of the owner that are gone there")
	f.BoolVarP(&ask.yes, "yes", "y", false, "delete without asking")
	f.BoolVar(&ask.dryRun, "dry-run", false, "with --apply or --undo, change nothing and show what would change")
	f.BoolVar(&ask.undo, "undo", false, "delete the jobs that the import made")
	addConnection(cmd, &ask.connection)
	addOutput(cmd, &ask.output, asTable, asYAML, asJSON)
}

// importForeign reads texts of an origin, and shows, applies or undoes the import.
func importForeign(ctx context.Context, env Env, ask importFlags, from origin, tables []cronTable) error {
	switch {
	case ask.undo && (ask.apply || ask.prune):
		return misused("--undo takes the import back: leave out --apply and its flags")
	case !ask.apply && (ask.prune || ask.skip || ask.dryRun && !ask.undo):
		return misused("--prune, --skip-errors and --dry-run need --apply")
	case ask.apply && ask.output == asYAML:
		return misused("-o yaml prints the jobs and --apply sends them: choose one")
	}
	var names []string
	for i := range tables {
		names = append(names, tables[i].name)
		if ask.undo {
			tables[i].read = func() []crontab.Line { return nil }
			continue
		}
		lines, err := from.read(tables[i].text)
		if err != nil {
			return failed("%s: %v", tables[i].name, err)
		}
		if len(lines) == 0 && !ask.apply {
			return failed("%s has no %s", tables[i].name, from.what)
		}
		tables[i].read = func() []crontab.Line { return lines }
	}
	slices.Sort(names)
	if ask.owner = cmp.Or(ask.owner, from.name+":"+strings.Join(names, ",")); len(ask.owner) > ownerMax {
		return misused("--owner is missing: the names of the files are too long for a mark")
	}
	ask.still = from.still
	ask.unit, _, _ = strings.Cut(from.what, " ")
	if ask.takeOver != nil {
		if err := ask.takeOver.prepare(tables); err != nil {
			return err
		}
	}
	if ask.undo {
		return undoImport(ctx, env, ask, tables)
	}
	documents, bad := readTables(env, ask, tables)
	if !ask.apply {
		return showImport(env, ask, tables, documents, bad)
	}
	tellWrong(env, tables)
	if bad > 0 && !ask.skip {
		return failed("%s no job, and nothing was changed", ask.makes(bad)).withHint("--skip-errors imports the others")
	}
	if len(documents) == 0 && !ask.prune {
		return failed("there is nothing to import")
	}
	return applyImport(ctx, env, ask, tables, documents)
}

// refuseOthers refuses an import that would change a job which no import made: an undo would delete it.
func refuseOthers(ctx context.Context, server *remote, would client.Applied) error {
	var others []string
	for _, r := range would.Results {
		if r.Kind != job.KindJob || r.Result != client.Changed {
			continue
		}
		namespace, name, _ := strings.Cut(r.Name, "/")
		d, err := server.Job(ctx, namespace, name, false)
		if err != nil {
			return server.refused(err)
		}
		row, err := server.read(d, job.KindJob)
		if err != nil {
			return err
		}
		if row.Job.Labels[ownerLabel] == "" {
			others = append(others, r.Name)
		}
	}
	if len(others) > 0 {
		return failed("no import made %s, and nothing was changed", shortList(others)).
			withHint("import into another namespace with -n NAMESPACE, or delete these first")
	}
	return nil
}

func newKubernetes(env Env) *cobra.Command {
	cmd := group("kubernetes", "k8s", "Import CronJobs of Kubernetes", "kubectl get cronjobs -o yaml | belfry kubernetes import -")
	cmd.AddCommand(newKubernetesImport(env), newKubernetesGiveBack(env))
	return cmd
}

func newKubernetesImport(env Env) *cobra.Command {
	var (
		ask       importFlags
		shell     bool
		jobs      bool
		takeOver  bool
		cluster   string
		live      clusterFlags
		suspended = "each CronJob still runs: suspend it with kubectl patch cronjob NAME -p '{\"spec\":{\"suspend\":true}}'\n"
	)
	cmd := &cobra.Command{
		Use:   "import [FILE...] [flags]",
		Short: "Turn CronJobs into jobs; without --apply, show what would become of each",
		Long: `Turn CronJobs of Kubernetes into equivalent jobs. Without --apply nothing is written:
the command shows the job for each CronJob, and what is lost.

It reads files of YAML or JSON with CronJobs among other objects, and - is standard
input. --live reads the CronJobs of a cluster: of the kubeconfig that KUBECONFIG or
~/.kube/config names, with a token or a certificate.

The pod becomes a job with run.container, for a node with Docker or Podman; with --jobs
its template stays as it is, in run.kubernetes, and with --shell its command runs on a
node. A CronJob always becomes the same job, so a second import changes nothing. The
jobs are marked with an owner; --prune deletes those whose CronJobs are gone, --undo all
of them without reading any CronJob.

--take-over, with --live and --apply, suspends each CronJob and resumes its job right
after that. It may be repeated; belfry kubernetes give-back reverses it.`,
		Example: `belfry kubernetes import cronjobs.yaml
kubectl get cronjobs -n shop -o yaml | belfry kubernetes import - --apply -n shop
belfry kubernetes import --live --kube-namespace shop
belfry kubernetes import --live --jobs --apply --take-over
belfry kubernetes import cronjobs.yaml --undo`,
		RunE: func(cmd *cobra.Command, files []string) error {
			if live.use == (len(files) > 0) {
				return misused("name files with CronJobs, or --live").withHint("kubectl get cronjobs -o yaml | belfry kubernetes import -")
			}
			switch {
			case takeOver && (!live.use || !ask.apply):
				return misused("--take-over needs --live and --apply: it suspends the CronJobs of the cluster")
			case jobs && shell:
				return misused("--jobs keeps the pod and --shell leaves it out: choose one")
			case cluster != "" && !jobs:
				return misused("--cluster needs --jobs: it is the cluster of the configuration in which they run")
			}
			var tables []cronTable
			var err error
			if live.use {
				var client *kube.Client
				if tables, client, err = live.cronJobs(cmd.Context(), env, ask.undo); takeOver {
					ask.takeOver = &cronJobChange{cluster: client}
				}
			} else {
				tables, err = filesToImport(env, files, ask.undo)
			}
			if err != nil {
				return err
			}
			opt := kubernetes.Options{Zone: cmp.Or(ask.zone, "UTC"), Shell: shell, Jobs: jobs, Cluster: cluster}
			err = importForeign(cmd.Context(), env, ask, origin{"kubernetes", "CronJob", suspended, func(text string) ([]crontab.Line, error) { return kubernetes.Import(text, opt) }}, tables)
			if err == nil && ask.undo && !ask.dryRun && live.use {
				env.tell("CronJobs that --take-over has suspended stay so until belfry kubernetes give-back\n")
			}
			return err
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	f := cmd.Flags()
	f.BoolVar(&shell, "shell", false, "run the commands on nodes, without their images")
	f.BoolVar(&live.use, "live", false, "read the CronJobs of a cluster")
	f.BoolVar(&jobs, "jobs", false, "keep the pods, as Jobs of the cluster by run.kubernetes")
	addWord(f, &cluster, "cluster", "", "NAME", "with --jobs, the cluster in kubernetes.clusters of the configuration; default: default")
	f.BoolVar(&takeOver, "take-over", false, "suspend the CronJobs, and resume their jobs")
	live.flags(cmd)
	ask.foreignFlags(cmd, "time zone of CronJobs without timeZone; default: UTC")
	return cmd
}

func newDkron(env Env) *cobra.Command {
	cmd := group("dkron", "dkrons", "Import jobs of Dkron", "belfry dkron import --url http://dkron:8080")
	cmd.AddCommand(newDkronImport(env))
	return cmd
}

func newDkronImport(env Env) *cobra.Command {
	var (
		ask  importFlags
		base string
	)
	cmd := &cobra.Command{
		Use:   "import [FILE...] [flags]",
		Short: "Turn jobs of Dkron into jobs; without --apply, show what would become of each",
		Long: `Turn jobs of Dkron into equivalent jobs. Without --apply nothing is written: the command
shows the job for each, and what is lost.

It reads files with the answer of GET /v1/jobs, and - is standard input. --url reads
the jobs of a server, with the token in DKRON_TOKEN if there is one, and changes
nothing there.

A job always becomes the same job, so a second import changes nothing. The jobs are
marked with an owner; --prune deletes those that are gone in Dkron, --undo all of
them without a request to Dkron.`,
		Example: `belfry dkron import --url http://dkron:8080
curl http://dkron:8080/v1/jobs | belfry dkron import - --apply
belfry dkron import jobs.json --undo`,
		RunE: func(cmd *cobra.Command, files []string) error {
			if (base != "") == (len(files) > 0) {
				return misused("name files with the answer of GET /v1/jobs, or --url").withHint("belfry dkron import --url http://dkron:8080")
			}
			var tables []cronTable
			var err error
			if base != "" {
				tables, err = dkronJobs(cmd.Context(), env, base, ask.undo)
			} else {
				tables, err = filesToImport(env, files, ask.undo)
			}
			if err != nil {
				return err
			}
			opt := dkron.Options{Zone: cmp.Or(ask.zone, machineZone(env.Getenv), "UTC")}
			return importForeign(cmd.Context(), env, ask, origin{"dkron", "job of Dkron", "Dkron still runs these jobs: disable each with curl -X POST http://DKRON/v1/jobs/NAME/toggle\n",
				func(text string) ([]crontab.Line, error) { return dkron.Import(text, opt) }}, tables)
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	addWord(cmd.Flags(), &base, "url", "", "URL", "address of a Dkron server whose jobs are read")
	ask.foreignFlags(cmd, "time zone of jobs without timezone; default: the zone of this machine")
	return cmd
}

// filesToImport reads files. An undo takes only their names: the files may be gone.
func filesToImport(env Env, files []string, undo bool) (tables []cronTable, err error) {
	for _, file := range files {
		t := cronTable{name: file, path: env.path(file)}
		if file == "-" {
			t.name, t.path = "stdin", ""
		}
		if !undo {
			if t.text, err = readTable(env, file); err != nil {
				return nil, err
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// foreignTimeout bounds a request to another scheduler.
const foreignTimeout = 30 * time.Second

// getForeign returns the answer to a GET request, at most as long as a file may be.
func getForeign(ctx context.Context, c *http.Client, address string, header http.Header) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", failed("%v", err)
	}
	request.Header = header
	response, err := c.Do(request)
	if err != nil {
		return "", &failure{code: ExitUnreachable, message: err.Error()}
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, foreignMax+1))
	switch {
	case err != nil:
		return "", failed("GET %s: %v", address, err)
	case response.StatusCode != http.StatusOK:
		why := struct{ Message string }{string(bytes.TrimSpace(data[:min(len(data), 300)]))}
		_ = json.Unmarshal(data, &why) // Kubernetes says it in a Status
		return "", failed("GET %s: %s: %s", address, response.Status, oneLine(why.Message))
	case len(data) > foreignMax:
		return "", failed("GET %s: the answer is longer than %d MiB", address, foreignMax>>20)
	}
	return string(data), nil
}

// foreignMax bounds the list of another scheduler: some ten thousand CronJobs.
const foreignMax = 64 << 20

// dkronJobs reads the jobs of a server of Dkron. An undo takes only its name.
func dkronJobs(ctx context.Context, env Env, base string, undo bool) ([]cronTable, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, misused("--url: %q is not the address of a server, such as http://dkron:8080", base)
	}
	if undo {
		return []cronTable{{name: u.Host}}, nil
	}
	header := http.Header{"Accept": {"application/json"}}
	if token := env.Getenv("DKRON_TOKEN"); token != "" {
		header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	}
	text, err := getForeign(ctx, &http.Client{}, strings.TrimSuffix(base, "/")+"/v1/jobs", header)
	return []cronTable{{name: u.Host, text: text}}, err
}

// workInWords describes the user of an imported command, or the image or address of other work.
func workInWords(j *job.Job) string {
	if user, _, _ := j.Run.AsCommand(); user != "" {
		return "as " + user
	}
	if j.Run.Does(job.WorkShell) {
		return ""
	}
	return j.Run.Subject()
}

// homeOf returns the home directory of the user.
func homeOf(env Env) string {
	if home := env.Getenv("HOME"); home != "" {
		return home
	}
	home, _ := os.UserHomeDir()
	return home
}
