package servers

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Redis is a Redis server of a test: a single one, a node of a cluster, or one that
// sentinels watch.
type Redis struct {
	*process
	busPort int // for nodes of a cluster
}

// StartRedis starts a single server that writes each change to its disk before it answers, and
// stops it at the end of the test. The options are for its command line.
func StartRedis(t testing.TB, options ...string) *Redis {
	t.Helper()
	r, err := NewRedis(options...)
	if err != nil {
		t.Fatalf("start Redis: %v", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("stop Redis: %v", err)
		}
	})
	return r
}

// NewRedis starts a single server that Close ends, for the TestMain of a package.
func NewRedis(options ...string) (r *Redis, err error) {
	r = &Redis{}
	r.process, err = newProcess("redis", redisReady, redisCommand(options))
	return r, err
}

// redisProgram is the server to run: BELFRY_REDIS may name Valkey's or another version.
func redisProgram() string { return cmp.Or(os.Getenv("BELFRY_REDIS"), "redis-server") }

// redisReady is in the log of a server, not of a sentinel, that is ready.
const redisReady = "Ready to accept connections"

// redisCommand returns the command line of a server that syncs every write.
func redisCommand(options []string) func(*process) *exec.Cmd {
	return func(p *process) *exec.Cmd {
		return exec.Command(redisProgram(), append([]string{
			"--bind", "127.0.0.1", "--port", strconv.Itoa(p.Port), "--dir", p.Dir,
			"--save", "", "--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0",
		}, options...)...)
	}
}

// NewRedisTLS starts a server that only accepts connections with TLS and a password, and returns
// the file of its certificate authority. Close ends it.
func NewRedisTLS(password string) (r *Redis, authority string, err error) {
	r = &Redis{}
	var c Certificate
	r.process, err = prepareProcess("redis", redisReady, func(p *process) *exec.Cmd {
		return exec.Command(redisProgram(), "--bind", "127.0.0.1", "--port", "0", "--tls-port", strconv.Itoa(p.Port), "--dir", p.Dir,
			"--tls-cert-file", c.Certificate, "--tls-key-file", c.Key, "--tls-ca-cert-file", c.Certificate, "--tls-auth-clients", "no",
			"--requirepass", password, "--save", "")
	})
	if err != nil {
		return nil, "", err
	}
	if c, err = NewCertificate(r.Dir, "127.0.0.1"); err == nil {
		err = startAnywhere(&r.Port, r.Start)
	}
	if err != nil {
		return nil, "", errors.Join(err, r.Close())
	}
	return r, c.Certificate, nil
}

// URL is the address for clients.
func (r *Redis) URL() string { return "redis://" + r.address() }

// Do runs a command and returns the answer, a line for each value.
func (r *Redis) Do(command ...string) (string, error) { return r.redisCLI(command...) }

// redisCLI runs redis-cli on a server or a sentinel.
func (p *process) redisCLI(args ...string) (string, error) {
	out, err := exec.Command("redis-cli", append([]string{"-e", "-p", strconv.Itoa(p.Port)}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("redis-cli %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// RedisCluster is a Redis Cluster of a test.
type RedisCluster struct {
	// Nodes are the masters, and after them their replicas.
	Nodes []*Redis
}

// redisMasters is the smallest number of masters of a cluster.
const redisMasters = 3

// NewRedisCluster starts a cluster of three masters with some replicas each. Close ends it.
func NewRedisCluster(replicas int, options ...string) (c *RedisCluster, err error) {
	const tries = 5
	for range tries {
		if c, err = newRedisCluster(replicas, options); !errors.Is(err, errTaken) {
			break
		}
	}
	return c, err
}

// newRedisCluster starts a cluster, unless one of its ports was taken in the meantime.
func newRedisCluster(replicas int, options []string) (c *RedisCluster, err error) {
	c = &RedisCluster{}
	nodes := c // c is nil after an error
	defer func() {
		if err != nil {
			err = errors.Join(err, nodes.Close())
		}
	}()
	create := []string{"--cluster", "create"}
	for range redisMasters * (1 + replicas) {
		r := &Redis{}
		if r.busPort, err = FreePort(); err != nil {
			return nil, err
		}
		// Two seconds without an answer are enough to see a death in a test.
		r.process, err = newProcess("redis", redisReady, redisCommand(append([]string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(r.busPort), "--cluster-node-timeout", "2000",
		}, options...)))
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, r)
		create = append(create, r.address())
	}
	if _, err := c.Nodes[0].Do(append(create, "--cluster-replicas", strconv.Itoa(replicas), "--cluster-yes")...); err != nil {
		return nil, err
	}
	return c, c.await()
}

// await waits until each node knows all slots, and each replica follows its master.
func (c *RedisCluster) await() error {
	return eventually("the cluster is complete", func() (string, error) {
		for _, r := range c.Nodes {
			info, err := r.Do("cluster", "info")
			if err != nil || !strings.Contains(info, "cluster_state:ok") {
				return info, err
			}
			info, err = r.Do("info", "replication")
			if err != nil || strings.Contains(info, "master_link_status:down") {
				return info, err
			}
		}
		return "", nil
	})
}

// Addresses returns the addresses of the nodes, as host:port.
func (c *RedisCluster) Addresses() []string {
	var list []string
	for _, r := range c.Nodes {
		list = append(list, r.address())
	}
	return list
}

// Close ends the nodes and removes their files.
func (c *RedisCluster) Close() error {
	var errs []error
	for _, r := range c.Nodes {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// RedisSentinel is a server with replicas, and sentinels that promote a replica when the master
// fails.
type RedisSentinel struct {
	// Servers are the first master, followed by its replicas.
	Servers   []*Redis
	sentinels []*process
}

// RedisMaster is the sentinels' name of the master.
const RedisMaster = "belfry"

// NewRedisSentinel starts a master with two replicas and three sentinels. Close ends them.
func NewRedisSentinel(options ...string) (s *RedisSentinel, err error) {
	const replicas, sentinels, quorum = 2, 3, 2
	s = &RedisSentinel{}
	all := s // s is nil after an error
	defer func() {
		if err != nil {
			err = errors.Join(err, all.Close())
		}
	}()
	for range 1 + replicas {
		own := options
		if len(s.Servers) > 0 {
			own = append([]string{"--replicaof", "127.0.0.1", strconv.Itoa(s.Servers[0].Port)}, options...)
		}
		r, err := NewRedis(own...)
		if err != nil {
			return nil, err
		}
		s.Servers = append(s.Servers, r)
	}
	// Two seconds without an answer are enough to see a death in a test.
	const config = `bind 127.0.0.1
sentinel monitor %[1]s 127.0.0.1 %[2]d %[3]d
sentinel down-after-milliseconds %[1]s 2000
sentinel failover-timeout %[1]s 10000
`
	for range sentinels {
		p, err := prepareProcess("sentinel", "Sentinel ID is", func(p *process) *exec.Cmd {
			return exec.Command(redisProgram(), filepath.Join(p.Dir, "sentinel.conf"), "--sentinel", "--port", strconv.Itoa(p.Port), "--dir", p.Dir)
		})
		if err != nil {
			return nil, err
		}
		s.sentinels = append(s.sentinels, p)
		text := fmt.Sprintf(config, RedisMaster, s.Servers[0].Port, quorum)
		if err := os.WriteFile(filepath.Join(p.Dir, "sentinel.conf"), []byte(text), 0o600); err != nil {
			return nil, err
		}
		if err := startAnywhere(&p.Port, p.Start); err != nil {
			return nil, err
		}
	}
	return s, s.await(replicas, sentinels)
}

// await waits until each sentinel knows the replicas and the other sentinels.
func (s *RedisSentinel) await(replicas, sentinels int) error {
	return eventually("the sentinels know each other", func() (string, error) {
		for _, p := range s.sentinels {
			info, err := p.redisCLI("info", "sentinel")
			if err != nil || !strings.Contains(info, fmt.Sprintf("status=ok,address=%s,slaves=%d,sentinels=%d", s.Servers[0].address(), replicas, sentinels)) {
				return info, err
			}
		}
		return "", nil
	})
}

// Addresses returns the addresses of the sentinels, as host:port.
func (s *RedisSentinel) Addresses() []string {
	var list []string
	for _, p := range s.sentinels {
		list = append(list, p.address())
	}
	return list
}

// Master returns the current master of the sentinels.
func (s *RedisSentinel) Master() (*Redis, error) {
	answer, err := s.sentinels[0].redisCLI("sentinel", "get-master-addr-by-name", RedisMaster)
	if err != nil {
		return nil, err
	}
	address := strings.Join(strings.Fields(answer), ":")
	for _, r := range s.Servers {
		if r.address() == address {
			return r, nil
		}
	}
	return nil, fmt.Errorf("the sentinels name %q as the master", answer)
}

// Close ends the servers and sentinels, and removes their files.
func (s *RedisSentinel) Close() error {
	errs := []error{closeAll(s.sentinels)}
	for _, r := range s.Servers {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// eventually waits until a condition holds; missing then returns "".
func eventually(condition string, missing func() (string, error)) error {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		what, err := missing()
		if err != nil || what == "" {
			return err
		}
		if time.Since(began) > startMax {
			return fmt.Errorf("%s: not after %v: %s", condition, startMax, what)
		}
	}
}
