package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// systems returns all that can be tortured.
func systems(o *options) []*system {
	list := append(libraries(), supercronic(), debianCron())
	list = append(list,
		belfry(o, "sqlite", "", 1, "latest"), belfry(o, "sqlite-all", "", 1, "all"), belfry(o, "postgres", "postgres", 3, "latest"), belfry(o, "postgres-all", "postgres", 3, "all"),
		belfry(o, "redis", "redis", 3, "latest"), belfry(o, "mariadb", "mariadb", 3, "latest"), belfry(o, "etcd", "etcd", 3, "latest"))
	if o.generic != "" {
		list = append(list, generic(o.generic))
	}
	return list
}

// libraries are those that a Go program schedules with: the program of each is in peers/.
func libraries() []*system {
	return []*system{
		library("robfig", "github.com/robfig/cron/v3", system{
			Nodes: 3, Every: time.Second, Settings: "WithSeconds, SkipIfStillRunning for the long job; three processes, as a service with three replicas has",
			Promises: "“Callers may register Funcs to be invoked on a given schedule. Cron will run them in their own goroutines.” Nothing about several processes.",
		}),
		library("gocron", "github.com/go-co-op/gocron/v2", system{
			Nodes: 3, Store: "redis", Every: time.Second, NoOverlap: true, Serial: true,
			Settings: "WithDistributedLocker with gocron-redis-lock and WithTries(1), as its page shows; singleton mode for the long job",
			Promises: "“WithDistributedLocker sets the locker to be used by multiple Scheduler instances to ensure that only one instance of each job is run.”",
		}),
		library("dcron", "github.com/libi/dcron", system{
			Nodes: 3, Store: "redis", Every: time.Second,
			Settings: "NewDcron with the driver for Redis and WithSeconds",
			Promises: "“The same task in the same service will only start a single running instance, and will not be executed repeatedly.” “If a single node fails, the task will be automatically transferred to other normal nodes after 10 seconds.”",
		}),
		library("asynq", "github.com/hibiken/asynq", system{
			Nodes: 3, Store: "redis", Every: time.Second,
			Settings: "one scheduler, in the first of three processes that all work; MaxRetry(0)",
			Promises: "“Guaranteed at least one execution of a task”, once its scheduler has enqueued it",
		}),
		library("river", "github.com/riverqueue/river", system{
			Nodes: 3, Store: "postgres", Every: time.Second,
			Settings: "MaxAttempts 1, schedules of robfig/cron as its example shows",
			Promises: "“The periodic job scheduler is approximate and doesn't guarantee strong durability.” “Periodic jobs should generally have an interval of at least 1 minute, and never less than one second.”",
		}),
	}
}

// supercronic is the cron for containers, built from its module.
func supercronic() *system {
	const module = "github.com/aptible/supercronic"
	return &system{
		Name: "supercronic", Version: moduleVersion(module), Nodes: 1, Every: time.Second, NoOverlap: true, Serial: true,
		Settings: "a crontab with a field for seconds",
		Promises: "“Supercronic will wait for a given job to finish before that job is scheduled again.”",
		prepare: func(_ context.Context, s *site) error {
			if _, err := build(s.bin, module); err != nil {
				return err
			}
			return s.crontab(filepath.Join(s.dir, "crontab"), " *", true)
		},
		node: func(s *site, _ int) *exec.Cmd {
			return exec.Command(filepath.Join(s.bin, "supercronic"), filepath.Join(s.dir, "crontab"))
		},
	}
}

// crontab writes the jobs as a crontab; more stands behind the fields of the time.
func (s *site) crontab(path, more string, seconds bool) error {
	var b strings.Builder
	for _, j := range s.jobs {
		fmt.Fprintf(&b, "%s%s %s\n", j.cron(seconds), more, j.shell())
	}
	return os.WriteFile(path, []byte(b.String()), 0o600) // cron refuses what others can write
}

// debianCron is the cron that is installed. It reads fixed places, which are folders of this run in a mount namespace of its own:
// that needs root.
func debianCron() *system {
	return &system{
		Name: "cron", Version: strings.TrimSpace(versionOf("dpkg-query", "-W", "-f", "${Version}", "cron")), Nodes: 1, Every: time.Minute,
		Settings: "cron -f with the table of one user",
		Promises: "“cron then wakes up every minute, examining all stored crontabs, checking each command to see if it should be run in the current minute.”",
		prepare: func(_ context.Context, s *site) error {
			if _, err := exec.LookPath("cron"); err != nil || os.Getuid() != 0 {
				return errors.New("needs cron, and root for a mount namespace")
			}
			for _, dir := range []string{"spool", "cron.d", "run"} {
				if err := os.Mkdir(filepath.Join(s.dir, dir), 0o755); err != nil {
					return err
				}
			}
			if err := os.WriteFile(filepath.Join(s.dir, "system"), nil, 0o644); err != nil {
				return err
			}
			return s.crontab(filepath.Join(s.dir, "spool", "root"), "", false)
		},
		node: func(s *site, _ int) *exec.Cmd {
			cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
				`mount --bind spool /var/spool/cron/crontabs && mount --bind cron.d /etc/cron.d && mount --bind run /run && { [ ! -e /etc/crontab ] || mount --bind system /etc/crontab; } && exec cron -f`)
			cmd.Dir = s.dir
			return cmd
		},
	}
}

// library makes a system of the program in peers/NAME.
func library(name, module string, s system) *system {
	s.Name, s.Version = name, moduleVersion(module)
	s.prepare = func(_ context.Context, site *site) error {
		if _, err := build(site.bin, "./peers/"+name); err != nil {
			return err
		}
		text, err := json.Marshal(site.jobs)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(site.dir, "jobs.json"), text, 0o644)
	}
	s.node = func(site *site, n int) *exec.Cmd {
		return exec.Command(filepath.Join(site.bin, name), "-jobs", filepath.Join(site.dir, "jobs.json"), "-store", site.storeAddress(n), "-name", fmt.Sprintf("node%d", n+1))
	}
	return &s
}

// moduleVersion is the version of a module that go.mod pins.
func moduleVersion(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == module {
				return d.Version
			}
		}
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		return "?"
	}
	return firstLine(string(out))
}

// A commands file describes any system by commands: each is a text for sh, which finds in its environment TORTURE_NODE (1, 2, …),
// TORTURE_DIR, TORTURE_DATA (where the disk can be full), TORTURE_JOBS (the file with the jobs), and TORTURE_STORE.
type commands struct {
	Name      string `json:"name"`
	Version   string `json:"version"` // a command that prints it
	Settings  string `json:"settings"`
	Promises  string `json:"promises"`
	Nodes     int    `json:"nodes"`
	Store     string `json:"store"`      // redis or postgres, or empty
	Every     string `json:"every"`      // the shortest interval, 1s or 1m
	NoOverlap bool   `json:"no_overlap"` // it promises that runs of a job with no_overlap do not overlap
	Start     string `json:"start"`      // a node in the foreground; it execs, so that signals reach it
	Define    string `json:"define"`     // sends the jobs, after the start; may be empty
	Change    string `json:"change"`     // sends TORTURE_JOB with TORTURE_CRON, which is empty to pause it; may be empty
}

// generic makes a system of a file with commands.
func generic(file string) *system {
	var c commands
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	every, failed := time.ParseDuration(c.Every)
	if err == nil {
		err = failed
	}
	if err == nil && (c.Name == "" || c.Start == "" || c.Nodes < 1) {
		err = fmt.Errorf("name, start and nodes are needed")
	}
	s := &system{Name: c.Name, Settings: c.Settings, Promises: c.Promises, Nodes: c.Nodes, Store: c.Store, Every: every, NoOverlap: c.NoOverlap}
	if s.Name == "" {
		s.Name = "generic"
	}
	shell := func(site *site, n int, text string, more ...string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", text)
		cmd.Env = append(os.Environ(), "TORTURE_DIR="+site.dir, "TORTURE_DATA="+site.disk.dir, "TORTURE_JOBS="+filepath.Join(site.dir, "jobs.json"))
		if n >= 0 {
			cmd.Env = append(cmd.Env, fmt.Sprintf("TORTURE_NODE=%d", n+1), "TORTURE_STORE="+site.storeAddress(n))
		}
		cmd.Env = append(cmd.Env, more...)
		return cmd
	}
	output := func(cmd *exec.Cmd) error {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	s.prepare = func(_ context.Context, site *site) error {
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if c.Version != "" {
			site.system.Version = versionOf("sh", "-c", c.Version)
		}
		type described struct {
			job
			Cron  string `json:"cron"`
			Shell string `json:"shell"`
		}
		var list []described
		for _, j := range site.jobs {
			list = append(list, described{j, j.cron(every < time.Minute), j.shell()})
		}
		text, err := json.MarshalIndent(list, "", " ")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(site.dir, "jobs.json"), text, 0o644)
	}
	s.node = func(site *site, n int) *exec.Cmd { return shell(site, n, c.Start) }
	if c.Define != "" {
		s.define = func(_ context.Context, site *site) error { return output(shell(site, 0, c.Define)) }
	}
	if c.Change != "" {
		s.change = func(_ context.Context, site *site, j job) error {
			cron := ""
			if j.Every > 0 {
				cron = j.cron(every < time.Minute)
			}
			return output(shell(site, 0, c.Change, "TORTURE_JOB="+j.Name, "TORTURE_CRON="+cron, "TORTURE_COMMAND="+j.shell()))
		}
	}
	return s
}

// belfry makes a system of the program that the flag -belfry names, with a policy for missed occurrences.
func belfry(o *options, name, store string, nodes int, missed string) *system {
	s := &system{
		Name: "belfry-" + name, Nodes: nodes, Store: store, Every: time.Second, NoOverlap: true,
		Settings: "defaults, but overlap: allow for all but the long job; of occurrences that fell due while no node ran, missed: " + missed,
		Promises: "“Every occurrence that falls due runs once and on time, or leaves a record that says why it did not.”",
	}
	data := func(site *site, n int) string { return filepath.Join(site.disk.dir, fmt.Sprintf("node%d", n+1)) }
	var addresses []string
	// A caller has one node after the other in turn, as behind a load balancer.
	turn := 0
	call := func(ctx context.Context, site *site, input string, args ...string) error {
		n := turn % nodes
		turn++
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, o.belfry, append(args, "--server", "http://"+addresses[n], "--data", data(site, n))...)
		cmd.Stdin = strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("belfry %s: %w: %s", args[0], err, out)
		}
		return nil
	}
	s.prepare = func(_ context.Context, site *site) error {
		if o.belfry == "" {
			return fmt.Errorf("the flag -belfry names the program")
		}
		site.system.Version, _, _ = strings.Cut(strings.TrimPrefix(versionOf(o.belfry, "version"), "belfry "), ",")
		if commit := site.system.Version[strings.LastIndexByte(site.system.Version, '-')+1:]; strings.HasPrefix(site.system.Version, "v0.0.0-") {
			site.system.Version = "commit " + commit
		}
		addresses = nil
		for range nodes {
			port, err := freePort()
			if err != nil {
				return err
			}
			addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
		}
		return nil
	}
	s.node = func(site *site, n int) *exec.Cmd {
		args := []string{"serve", "--data", data(site, n), "--listen", addresses[n], "--name", fmt.Sprintf("node%d", n+1)}
		if store != "" {
			args = append(args, "--store", site.storeAddress(n))
			if os.Getuid() == 0 { // as the commands of the other systems
				args = append(args, "--run-as", "root")
			}
		}
		return exec.Command(o.belfry, args...)
	}
	definition := func(j job) string {
		overlap := "allow"
		if j.NoOverlap {
			overlap = "skip"
		}
		return fmt.Sprintf("---\nname: %s\nschedule:\n  cron: %q\nrun:\n  shell: %q\npolicy:\n  overlap: %s\n  missed: %s\n", j.Name, j.cron(true), j.shell(`"$BELFRY_SCHEDULED"`), overlap, missed)
	}
	s.define = func(ctx context.Context, site *site) error {
		var all strings.Builder
		for _, j := range site.jobs {
			all.WriteString(definition(j))
		}
		return call(ctx, site, all.String(), "apply", "-f", "-")
	}
	s.change = func(ctx context.Context, site *site, j job) error {
		switch {
		case j.Every == 0:
			return call(ctx, site, "", "job", "pause", j.Name)
		case j.Name == "paused":
			return call(ctx, site, "", "job", "resume", j.Name)
		}
		return call(ctx, site, definition(j), "apply", "-f", "-")
	}
	return s
}
