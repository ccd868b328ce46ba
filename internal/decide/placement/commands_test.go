package placement_test

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/decide/placement"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// jobFrom reads a job.
func jobFrom(t *testing.T, text string) *job.Job {
	t.Helper()
	documents, err := job.Decode("", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return documents[0].Job.WithDefaults(job.Defaults{})
}

func publishing(name string, c placement.Commands) store.Session {
	return store.Session{Node: name, Roles: []string{store.RoleWorker}, Labels: map[string]string{"host": name}, Handlers: []string{c.Handler()}}
}

func TestBarredJobsNameTheSettingAndThePlace(t *testing.T) {
	const file, reload = "/etc/belfry/belfry.yaml", "systemctl reload belfry"
	strict := publishing("ber-1", placement.Commands{Users: []string{"", "belfry", "999"}, File: file, Reload: reload, Shell: true})
	listed := publishing("ber-2", placement.Commands{Users: []string{"", "backup", "34"}, Configured: []string{"backup", "gone"}, Absent: []string{"gone"}, File: file, Reload: reload, Shell: true})
	open := publishing("ber-3", placement.Commands{Users: []string{"*"}, Shell: true})
	plain := publishing("ber-4", placement.Commands{Users: []string{""}, Shell: true})
	single := publishing("ber-5", placement.Commands{Users: []string{"", "ops", "1000"}, Self: "ops", Shell: true})
	bare := publishing("ber-6", placement.Commands{Users: []string{""}})
	old := store.Session{Node: "old", Roles: []string{store.RoleWorker}}
	drained := publishing("ber-7", placement.Commands{Users: []string{"www-data"}, Shell: true})
	drained.Drain = &store.Drain{By: "ann"}
	www := "{name: a, run: {shell: 'true; true', user: www-data}}"
	for _, c := range []struct {
		name string
		job  string
		live []store.Session
		want string
	}{
		{"a user that is not listed", www, []store.Session{strict}, "no node may run as www-data: set shell: {allow_users: [www-data]} in /etc/belfry/belfry.yaml on node ber-1, then systemctl reload belfry"},
		{"a user beside listed ones", www, []store.Session{listed}, "no node may run as www-data: set shell: {allow_users: [backup, gone, www-data]} in /etc/belfry/belfry.yaml on node ber-2, then systemctl reload belfry"},
		{"a node without a file", www, []store.Session{plain}, "no node may run as www-data: start node ber-4 with --config and a file that has shell: {allow_users: [www-data]}"},
		{"a node that cannot switch users", www, []store.Session{single}, "no node may run as www-data: node ber-5 runs as ops and cannot switch users; run it as root with --run-as ops, or leave run.user out"},
		{"the user of such a node, by its number", "{name: a, run: {shell: x, user: '1000'}}", []store.Session{single}, ""},
		{"one of two nodes allows it", www, []store.Session{strict, open}, ""},
		{"the only node that allows it is drained", www, []store.Session{strict, drained}, ""},
		{"a listed user, by its number", "{name: a, run: {shell: x, user: '34'}}", []store.Session{listed}, ""},
		{"a listed user that the machine does not have", "{name: a, run: {shell: x, user: gone}}", []store.Session{listed}, "no node may run as gone: node ber-2 has no such user"},
		{"root, where every other user is allowed", "{name: a, run: {shell: x, user: root}}", []store.Session{open}, "no node may run as root: start node ber-3 with --config and a file that has shell: {allow_users: [root]}"},
		{"no user, where none is the default", "{name: a, run: {shell: x}}", []store.Session{open}, "no node may run it without run.user: name a user in run.user, or start node ber-3 with --run-as"},
		{"a node of an earlier version", www, []store.Session{strict, old}, ""},
		{"no live node", www, nil, ""},
		{"a shell where there is none", "{name: a, run: {shell: 'echo 你好'}}", []store.Session{bare}, "no node may run it: it needs sh, and node ber-6 has none in shell.path"},
		{"plain words where there is no shell", "{name: a, run: {shell: /usr/bin/backup --all}}", []store.Session{bare}, ""},
		{"an interpreter where there is no shell", "{name: a, run: {shell: {script: 'print(1)', interpreter: python3}}}", []store.Session{bare}, ""},
		{"a request where there is no shell", "{name: a, run: {http: {url: 'http://a/'}}}", []store.Session{bare}, ""},
		{"labels before users", "{name: a, run: {shell: x, user: www-data}, place: {labels: {host: ber-9}}}", []store.Session{strict}, "no live node has the label host=ber-9"},
		{"only nodes with the labels count", "{name: a, run: {shell: x, user: www-data}, place: {labels: {host: ber-1}}}", []store.Session{strict, open}, "no node may run as www-data: set shell: {allow_users: [www-data]} in /etc/belfry/belfry.yaml on node ber-1, then systemctl reload belfry"},
		{"a handler", "{name: a, run: {handler: bake}}", []store.Session{open}, "no live node has the handler bake"},
		{"a step of a flow", "{name: a, run: {flow: {steps: [{name: one, run: {shell: x}}, {name: two, run: {shell: x, user: www-data}}]}}}", []store.Session{single}, "step two: no node may run as www-data: node ber-5 runs as ops and cannot switch users; run it as root with --run-as ops, or leave run.user out"},
		{"an external job", "{name: a, schedule: {cron: '0 3 * * *'}, run: {external: {}}}", []store.Session{bare}, ""},
	} {
		if got := placement.Barred(jobFrom(t, c.job), c.live); got.String() != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAllowUsersCanBePasted(t *testing.T) {
	if got := placement.AllowUsers([]string{"*", "root"}, "root", "www-data"); got != `shell: {allow_users: ["*", root, www-data]}` {
		t.Error(got)
	}
	if h := (placement.Commands{Users: []string{"a"}}).Handler(); !placement.IsCommands(h) || placement.IsCommands("bake") || !strings.HasPrefix(h, ":") {
		t.Error(h)
	}
}
