package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/belfry-cron/belfry/store"
)

const (
	// waitFor is how long a commit waits for replicas, if configured.
	waitFor = time.Second
)

// Variables, because tests on slow machines need more time.
var (
	// callMax bounds a call: longer than a script and its fsync.
	callMax = 5 * time.Second
	// dialMax bounds the making of a connection.
	dialMax = 3 * time.Second
)

// dial connects to the master, and refuses one that may evict acknowledged data. It asks other servers
// too that an earlier connection has named.
func dial(ctx context.Context, a location, others ...string) (*client, About, error) {
	hosts := slices.Concat(a.Hosts, others)
	if a.sentinel != "" {
		host, others, err := masterOf(ctx, a, hosts)
		if err != nil {
			return nil, About{}, ended(ctx, err)
		}
		client, about, err := try(ctx, a, host)
		if err == nil {
			client.others = others
		}
		return client, about, err
	}
	var errs []error
	for _, host := range hosts {
		client, about, err := try(ctx, a, host)
		if err == nil {
			return client, about, nil
		}
		if len(hosts) > 1 {
			err = fmt.Errorf("%s: %w", host, err)
		}
		errs = append(errs, err)
	}
	return nil, About{}, errors.Join(errs...)
}

// hopsMax is how many nodes of a cluster are asked where the keys are.
const hopsMax = 4

// try connects to a server, or to the node of its cluster that has the keys.
func try(ctx context.Context, a location, host string) (c *client, about About, err error) {
	for range hopsMax {
		c = newClient(a, host)
		about, err = look(ctx, c, a)
		if err == nil {
			err = about.usable()
		}
		if err == nil {
			if about.mode == "cluster" {
				c.others = c.nodes(ctx)
			}
			return c, about, nil
		}
		c.Close()
		to := movedTo(err, host)
		if to == "" {
			break
		}
		host = to
	}
	return nil, about, err
}

// movedTo returns where the keys are by the error of a node of a cluster, "" for another error.
func movedTo(err error, host string) string {
	if refusal(err) != "MOVED" {
		return ""
	}
	var refused redis.Error
	errors.As(err, &refused)
	text := refused.Error()
	to := text[strings.LastIndexByte(text, ' ')+1:]
	if strings.HasPrefix(to, ":") { // on the host that has answered
		name, _, _ := net.SplitHostPort(host)
		return net.JoinHostPort(name, to[1:])
	}
	return to
}

// nodes returns the addresses of the nodes of a cluster, none if that is forbidden.
func (c *client) nodes(ctx context.Context) (hosts []string) {
	within, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	text, _ := redis.String(c.do(within, "CLUSTER", "NODES"))
	for line := range strings.Lines(text) { // id 127.0.0.1:30001@31001,name master - ...
		if words := strings.Fields(line); len(words) > 1 {
			if at, _, _ := strings.Cut(words[1], "@"); !strings.HasPrefix(at, ":") {
				hosts = append(hosts, at)
			}
		}
	}
	return hosts
}

// masterOf asks Sentinels, one after the other, for the master and for more Sentinels.
func masterOf(ctx context.Context, a location, sentinels []string) (master string, others []string, err error) {
	var errs []error
	for _, host := range sentinels {
		master, others, err := askSentinel(ctx, a, host)
		if err == nil {
			return master, others, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", host, err))
	}
	return "", nil, errors.Join(errs...)
}

func askSentinel(ctx context.Context, a location, host string) (master string, others []string, err error) {
	var options []redis.DialOption
	if a.sentinelAuth {
		options = append(options, redis.DialUsername(a.User), redis.DialPassword(a.Password))
	}
	conn, err := connect(ctx, a, host, options...)
	if err != nil {
		return "", nil, err
	}
	defer conn.Close()
	within, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	at, err := redis.Strings(redis.DoContext(conn, within, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", a.sentinel))
	if errors.Is(err, redis.ErrNil) || err == nil && len(at) != 2 {
		return "", nil, fmt.Errorf("the Sentinel knows no master %q", a.sentinel)
	}
	if err != nil {
		return "", nil, err
	}
	known, err := redis.Values(redis.DoContext(conn, within, "SENTINEL", "SENTINELS", a.sentinel))
	for _, one := range known {
		if is, err := redis.StringMap(one, nil); err == nil {
			others = append(others, net.JoinHostPort(is["ip"], is["port"]))
		}
	}
	return net.JoinHostPort(at[0], at[1]), others, err
}

// About is the result of a check of a server.
type About struct {
	// Server is its kind and its version.
	Server string
	mode   string // standalone, cluster or sentinel
	role   string // master or slave
	major  int
	minor  int
	// Replicas is how many follow it.
	Replicas int
	// Used is how many bytes of memory it uses, and Most how many it may use, 0 for all.
	Used, Most int64
	// Policy is what the server does at its memory limit.
	Policy string
	// AOF is whether it keeps a file of its writes, Sync when that is flushed to disk, and Least
	// how many replicas a write needs; Sync is empty where CONFIG is forbidden.
	AOF   bool
	Sync  string
	Least int
	// Wait is how many replicas must have a step before it is acknowledged, from the address.
	Wait int
	// Offset is how far the clock of the server is ahead of this machine's clock.
	Offset time.Duration
}

// look reads INFO of the server, in a script, which only the master of the keys runs.
func look(ctx context.Context, c *client, a location) (about About, err error) {
	within, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	text, err := redis.String(c.do(within, "EVAL", "return redis.call('INFO')", 1, keysOf(a).meta))
	switch {
	case err == nil:
		return read(text), nil
	case refusal(err) == "MOVED":
		return about, ended(ctx, err)
	case strings.Contains(err.Error(), "SELECT is not allowed in cluster mode"):
		return about, errNoDatabases
	}
	// A Sentinel has no scripts.
	if plain, other := redis.String(c.do(within, "INFO", "server")); other == nil {
		if about = read(plain); about.mode == "sentinel" {
			return about, nil
		}
	}
	return about, ended(ctx, err)
}

var errNoDatabases = errors.New("a Redis Cluster has no databases: leave db out")

func read(info string) (about About) {
	lines := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		lines[name] = value
	}
	number := func(name string) int64 { n, _ := strconv.ParseInt(lines[name], 10, 64); return n }
	about = About{
		Server: "Redis " + lines["redis_version"], mode: cmp.Or(lines["redis_mode"], lines["server_mode"]), role: lines["role"],
		Replicas: int(number("connected_slaves")), Used: number("used_memory"), Most: number("maxmemory"),
		Policy: lines["maxmemory_policy"], AOF: lines["aof_enabled"] == "1",
	}
	if version := lines["valkey_version"]; version != "" {
		about.Server = "Valkey " + version
	}
	_, _ = fmt.Sscanf(lines["redis_version"], "%d.%d", &about.major, &about.minor) // an unknown version is too old
	return about
}

// usable returns why a server cannot have a store.
func (about *About) usable() error {
	switch {
	case about.mode == "sentinel":
		return errors.New("the server is a Sentinel: add ?sentinel= and the name by which it knows the master")
	case about.major < 6 || about.major == 6 && about.minor < 2:
		return fmt.Errorf("%s is too old, 6.2 or later is needed", about.Server)
	case about.role != "master":
		return fmt.Errorf("%w: the server is a replica", store.ErrAway)
	case about.Policy != "noeviction":
		return fmt.Errorf("maxmemory-policy is %s, which may remove jobs when the memory is full: set it to noeviction", about.Policy)
	}
	return nil
}

// failure translates an error of the client into an error of the store contract.
func failure(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	switch refusal(err) {
	case "":
		return fmt.Errorf("%w: %w", store.ErrAway, err)
	case "OOM":
		return fmt.Errorf("%w: %w", store.ErrNoSpace, err)
	case "MISCONF", "NOREPLICAS":
		return fmt.Errorf("%w: %w", store.ErrReadOnly, err)
	case "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN", "UNBLOCKED", "BUSY", "UNKILLABLE":
		return fmt.Errorf("%w: %w", store.ErrAway, err)
	}
	return err
}

// ended returns the context's error if the call's own context has ended, or the error of the call.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return failure(err)
}

// Check examines the servers at an address without changing anything.
func Check(ctx context.Context, url string) (about About, err error) {
	a, err := parse(url)
	if err != nil {
		return about, err
	}
	client, about, err := dial(ctx, a)
	if err != nil {
		return about, fmt.Errorf("connect to Redis at %s: %w", strings.Join(a.Hosts, ", "), err)
	}
	defer client.Close()
	about.Wait = a.wait
	within, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	sent := time.Now()
	if parts, err := redis.Int64s(client.do(within, "TIME")); err == nil && len(parts) == 2 {
		about.Offset = time.Unix(parts[0], 1000*parts[1]).Sub(sent.Add(time.Since(sent) / 2))
	}
	if settings, err := redis.StringMap(client.do(within, "CONFIG", "GET", "*")); err == nil { // CONFIG may be forbidden
		about.Sync = settings["appendfsync"]
		about.Least, _ = strconv.Atoi(settings["min-replicas-to-write"])
	}
	return about, nil
}

// Durable reports whether a crash of the server loses nothing that it has acknowledged.
func (about About) Durable() bool { return about.AOF && about.Sync == "always" }

// String describes in words what the server guarantees.
func (about About) String() string {
	room := fmt.Sprintf("%d MB in use", about.Used>>20)
	if about.Most > 0 {
		room = fmt.Sprintf("%d MB of %d MB in use", about.Used>>20, about.Most>>20)
	}
	crash := "a crash may lose what came after the last snapshot"
	switch {
	case about.Durable():
		crash = "a crash loses nothing"
	case about.AOF && about.Sync == "":
		crash = "CONFIG is forbidden, so appendfsync is not known, and with it what a crash may lose"
	case about.AOF && about.Sync == "no":
		crash = "a crash of the machine may lose the last 30 s"
	case about.AOF:
		crash = "a crash may lose the last 2 s"
	}
	failover := "it has no replica"
	switch {
	case about.Replicas > 0 && about.Wait > 0:
		failover = fmt.Sprintf("it has %d replicas, and %d of them must have a step before it counts", about.Replicas, about.Wait)
	case about.Replicas > 0 && about.Least > 0:
		failover = fmt.Sprintf("of %d replicas %d must follow; a failover may lose what was not replicated", about.Replicas, about.Least)
	case about.Replicas > 0:
		failover = fmt.Sprintf("it has %d replicas; a failover may lose what was not replicated", about.Replicas)
	}
	return strings.Join([]string{about.Server, room, crash, failover}, "; ")
}
