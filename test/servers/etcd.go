package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Etcd is a member of an etcd cluster of a test, which may be its only one.
type Etcd struct {
	*process
	peerPort int
}

// StartEtcd starts a server, and stops it at the end of the test. The options are for its command
// line.
func StartEtcd(t testing.TB, options ...string) *Etcd {
	t.Helper()
	e, err := NewEtcd(options...)
	if err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("stop etcd: %v", err)
		}
	})
	return e
}

// NewEtcd starts a server that Close ends, for the TestMain of a package.
func NewEtcd(options ...string) (*Etcd, error) {
	members, err := NewEtcdCluster(1, options...)
	if err != nil {
		return nil, err
	}
	return members[0], nil
}

// NewEtcdCluster starts a cluster of some members. Each is ended with its Close.
func NewEtcdCluster(members int, options ...string) (cluster []*Etcd, err error) {
	program := os.Getenv("BELFRY_ETCD") // of another version
	if program == "" {
		if program, err = build("etcd", "go.etcd.io/etcd/server/v3"); err != nil {
			return nil, err
		}
	}
	const tries = 5
	for range tries {
		if cluster, err = newEtcdCluster(program, members, options); !errors.Is(err, errTaken) {
			break
		}
	}
	return cluster, err
}

// newEtcdCluster starts a cluster, unless one of its ports was taken in the meantime.
func newEtcdCluster(program string, members int, options []string) (cluster []*Etcd, err error) {
	var processes []*process
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(processes))
		}
	}()
	var peers []string
	for i := range members {
		e := &Etcd{}
		if e.peerPort, err = FreePort(); err != nil {
			return nil, err
		}
		name, peer := fmt.Sprintf("member%d", i), fmt.Sprintf("http://127.0.0.1:%d", e.peerPort)
		e.process, err = prepareProcess("etcd", "ready to serve client requests", func(p *process) *exec.Cmd {
			return exec.Command(program, append([]string{
				"--name=" + name, "--data-dir=data", "--log-outputs=stderr",
				"--listen-client-urls=" + e.URL(), "--advertise-client-urls=" + e.URL(),
				"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
				"--initial-cluster=" + strings.Join(peers, ","),
			}, options...)...)
		})
		if err != nil {
			return nil, err
		}
		peers = append(peers, name+"="+peer)
		cluster, processes = append(cluster, e), append(processes, e.process)
	}
	return cluster, startAll(processes)
}

// URL is the address for clients.
func (e *Etcd) URL() string { return "http://" + e.address() }
