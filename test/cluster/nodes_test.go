//go:build servers

package cluster_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/test/e2e/ownclock"
	"github.com/belfry-cron/belfry/test/servers"
)

// programs are what the tests start. They are built once, as they are released.
var programs struct{ belfry, witness string }

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "belfry-cluster")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		programs.belfry, programs.witness = filepath.Join(dir, "belfry"), filepath.Join(dir, "witness")
		if err := errors.Join(servers.Build(programs.belfry, "cmd/belfry"), servers.Build(programs.witness, "test/e2e/witness")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// database is the server that the nodes share.
type database interface {
	Start() error
	Stop() error
	Kill() error
}

// databases are the kinds of servers that each test runs on: those that BELFRY_DATABASE
// names, separated by commas, or all.
func databases() []string {
	return strings.Split(cmp.Or(os.Getenv("BELFRY_DATABASE"), "postgres,mariadb,etcd,redis"), ",")
}

// startDatabase starts a server, postgres, mariadb, etcd or redis, and returns the address of
// an empty database of it.
func startDatabase(t testing.TB, name string) (database, *url.URL) {
	t.Helper()
	var (
		server  database
		address string
		err     error
	)
	switch name {
	case "postgres":
		p := servers.StartPostgres(t)
		server, address = p, p.Schema()
	case "mariadb":
		m := servers.StartMariaDB(t)
		server = m
		address, err = m.Database()
	case "etcd":
		e := servers.StartEtcd(t)
		server, address = e, "etcd"+strings.TrimPrefix(e.URL(), "http")
	case "redis":
		r := servers.StartRedis(t)
		server, address = r, r.URL()
	default:
		err = fmt.Errorf("BELFRY_DATABASE has %q, want postgres, mariadb, etcd or redis", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return server, u
}

// patience is how long the tests wait for what should be there soon: far more than
// that, for machines that are busy with something else. What a lost node ran has 9 s of
// it to be given up.
const patience = 5 * time.Minute

// eventually waits until a condition holds. Other processes make it hold, without a
// notice.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// node is a process of belfry serve, and what it is started again with.
type node struct {
	*client.Client
	t     testing.TB
	name  string
	dir   string
	proxy *proxy
	store string
	// history is the URL of the history store, if it is apart.
	history string
	// env is added to the environment of its process.
	env []string
	// clock is the file that sets the wall clock of its process, and program has such a clock.
	clock, program string

	cmd    *exec.Cmd
	exited chan struct{}                 // closed when the process is gone
	asked  atomic.Pointer[client.Client] // nil while it has not said where it listens
	token  string                        // of the whole cluster; empty for the first node until it has made it
	starts int
}

// apply asks the node to make the job of a text.
func (n *node) apply(text string) {
	n.t.Helper()
	documents, err := job.Decode("job.yaml", []byte(text))
	if err != nil {
		n.t.Fatal(err)
	}
	document, err := client.DocumentOf(documents[0])
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.Apply(n.t.Context(), client.Apply{Documents: []client.Document{document}}); err != nil {
		n.t.Fatal(err)
	}
}

// logFile is what the present process logs to.
func (n *node) logFile() string { return filepath.Join(n.dir, fmt.Sprintf("log.%d", n.starts)) }

// start starts the node and waits until it is live.
func (n *node) start() {
	n.t.Helper()
	n.launch()
	n.await()
}

// launch starts the process of the node.
func (n *node) launch() {
	n.t.Helper()
	u, err := user.Current()
	if err != nil {
		n.t.Fatal(err)
	}
	n.starts++
	log, err := os.Create(n.logFile())
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	n.cmd = exec.Command(cmp.Or(n.program, programs.belfry), "serve", "--data", filepath.Join(n.dir, "data"), "--listen", "127.0.0.1:0", "--name", n.name,
		"--run-as", u.Username, "--log-format", "json", "--label", "node="+n.name)
	if n.store != "" { // else it is in the data directory
		n.cmd.Args = append(n.cmd.Args, "--store", n.store)
	}
	if n.history != "" {
		n.cmd.Args = append(n.cmd.Args, "--history", n.history)
	}
	if n.cmd.Env = append(os.Environ(), n.env...); n.clock != "" {
		n.cmd.Env = append(n.cmd.Env, ownclock.Variable+"="+n.clock)
	}
	n.cmd.Stderr = log
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(n.cmd, n.exited)
	n.Client = nil
	n.asked.Store(nil)
}

// await waits until the node is live.
func (n *node) await() {
	n.t.Helper()
	eventually(n.t, "node "+n.name+" is live", func() bool {
		select {
		case <-n.exited:
			n.t.Fatalf("node %s ended: %s", n.name, n.cmd.ProcessState)
		default:
		}
		return (n.Client != nil || n.connect()) && n.live(n.name)
	})
}

// connect makes the client once the node has said where it listens.
func (n *node) connect() bool {
	n.t.Helper()
	text, err := os.ReadFile(n.logFile())
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var answer struct{ Msg, URL, Token string }
		if json.Unmarshal([]byte(line), &answer) != nil || answer.Msg != "listening" {
			continue
		}
		if n.token == "" {
			token, err := os.ReadFile(answer.Token)
			if err != nil {
				n.t.Fatal(err)
			}
			n.token = strings.TrimSpace(string(token))
		}
		if n.Client, err = client.New(client.Config{URL: answer.URL, Token: n.token}); err != nil {
			n.t.Fatal(err)
		}
		n.asked.Store(n.Client)
		return true
	}
	return false
}

// live reports whether this node says that one is.
func (n *node) live(name string) bool {
	nodes, err := n.Nodes(n.t.Context())
	if err != nil {
		return false
	}
	for _, other := range nodes.Items {
		if other.Name == name && other.State == "live" {
			return true
		}
	}
	return false
}

func (n *node) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// kill ends the process as nothing gentle does.
func (n *node) kill() {
	n.t.Helper()
	n.signal(syscall.SIGKILL)
	<-n.exited
}

// stop ends the process gently, and it must say that all was well.
func (n *node) stop() {
	n.t.Helper()
	n.signal(syscall.SIGTERM)
	eventually(n.t, "node "+n.name+" ends", func() bool {
		select {
		case <-n.exited:
			return true
		default:
			return false
		}
	})
	if !n.cmd.ProcessState.Success() {
		n.t.Fatalf("node %s: %s", n.name, n.cmd.ProcessState)
	}
}

// end ends what is left of the node after the test.
func (n *node) end() {
	if n.cmd == nil || n.cmd.Process == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.exited
	if !n.t.Failed() {
		return
	}
	for i := range n.starts {
		text, err := os.ReadFile(filepath.Join(n.dir, fmt.Sprintf("log.%d", i+1)))
		n.t.Logf("node %s, process %d: %v\n%s", n.name, i+1, err, text)
	}
}
