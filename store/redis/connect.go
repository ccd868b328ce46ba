package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/belfry-cron/belfry/store"
)

const (
	// waitFor is how long a commit waits for replicas, if configured.
	waitFor = time.Second
	// lookEach is how often the Sentinels are asked.
	lookEach = 5 * time.Second
)

// Variables, because tests on slow machines need more time.
var (
	// callMax bounds a call: longer than a script and its fsync.
	callMax = 5 * time.Second
	// dialMax bounds the making of a connection.
	dialMax = 3 * time.Second
)

// options returns the options of connections. Nothing is sent twice: a step that may have been done
// is decided again.
func options(a location, hosts []string) rueidis.ClientOption {
	o := rueidis.ClientOption{
		InitAddress: hosts, Username: a.User, Password: a.Password, SelectDB: a.db, TLSConfig: a.TLS,
		Dialer: net.Dialer{Timeout: dialMax, KeepAlive: time.Second}, ConnWriteTimeout: callMax,
		DisableRetry: true, DisableCache: true, ClientName: "belfry",
		// Each node has several buffers, which are 1 MB by default.
		ReadBufferEachConn: 64 << 10, WriteBufferEachConn: 64 << 10,
	}
	if a.sentinel == "" {
		return o
	}
	o.Sentinel = rueidis.SentinelOption{
		MasterSet: a.sentinel, Dialer: o.Dialer, TLSConfig: a.TLS, TopologyRefreshInterval: lookEach,
	}
	if a.sentinelAuth {
		o.Sentinel.Username, o.Sentinel.Password = a.User, a.Password
	}
	return o
}

// dial connects to the master, and refuses one that may evict acknowledged data.
func dial(ctx context.Context, a location) (rueidis.Client, About, error) {
	if a.sentinel != "" {
		return try(ctx, a, options(a, a.Hosts))
	}
	var errs []error
	for _, host := range a.Hosts {
		o := options(a, []string{host})
		o.ForceSingleClient = true
		client, about, err := try(ctx, a, o)
		if errors.Is(err, errCluster) {
			return try(ctx, a, options(a, a.Hosts))
		}
		if err == nil {
			return client, about, nil
		}
		if len(a.Hosts) > 1 {
			err = fmt.Errorf("%s: %w", host, err)
		}
		errs = append(errs, err)
	}
	return nil, About{}, errors.Join(errs...)
}

// errCluster explains a connection to one node of a Redis Cluster.
var errCluster = errors.New("the server is a node of a Redis Cluster")

// try connects with given options.
func try(ctx context.Context, a location, o rueidis.ClientOption) (client rueidis.Client, about About, err error) {
	if client, err = rueidis.NewClient(o); err != nil {
		return nil, about, failure(err)
	}
	if about, err = look(ctx, client, a); err == nil {
		err = about.usable(a, o.ForceSingleClient)
	}
	if err != nil {
		client.Close()
		return nil, about, err
	}
	return client, about, nil
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
	runID  string
}

// look reads INFO of the master, in a script, which is routed to the server with the keys.
func look(ctx context.Context, client rueidis.Client, a location) (about About, err error) {
	within, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	text, err := client.Do(within, client.B().Eval().Script("return redis.call('INFO')").Numkeys(1).Key(keysOf(a).meta).Build()).ToString()
	if err != nil {
		// A node of a cluster that has not the keys refuses the script, and a Sentinel has none.
		if plain, other := client.Do(within, client.B().Info().Section("server").Build()).ToString(); other == nil {
			if about = read(plain); about.mode != "standalone" {
				return about, nil
			}
		}
		return about, ended(ctx, err)
	}
	return read(text), nil
}

func read(info string) (about About) {
	lines := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		lines[name] = value
	}
	number := func(name string) int64 { n, _ := strconv.ParseInt(lines[name], 10, 64); return n }
	about = About{
		Server: "Redis " + lines["redis_version"], mode: cmp.Or(lines["redis_mode"], lines["server_mode"]), role: lines["role"], runID: lines["run_id"],
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
func (about *About) usable(a location, single bool) error {
	switch {
	case about.mode == "sentinel":
		return errors.New("the server is a Sentinel: add ?sentinel= and the name by which it knows the master")
	case about.mode == "cluster" && single:
		return errCluster
	case about.mode == "cluster" && a.db > 0:
		return errors.New("a Redis Cluster has no databases: leave db out")
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
	redisErr, is := rueidis.IsRedisErr(err)
	if !is {
		return fmt.Errorf("%w: %w", store.ErrAway, err)
	}
	switch reason(redisErr.Error()) {
	case "OOM":
		return fmt.Errorf("%w: %w", store.ErrNoSpace, err)
	case "MISCONF", "NOREPLICAS":
		return fmt.Errorf("%w: %w", store.ErrReadOnly, err)
	case "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN", "UNBLOCKED", "BUSY", "UNKILLABLE":
		return fmt.Errorf("%w: %w", store.ErrAway, err)
	}
	return err
}

// reason returns the word that an error begins with. For a failed script Redis 6 puts other words
// before it.
func reason(message string) string {
	if at := strings.LastIndex(message, ": -"); at >= 0 {
		message = message[at+len(": -"):]
	}
	word, _, _ := strings.Cut(message, " ")
	return word
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
	for _, node := range client.Nodes() {
		info, err := node.Do(within, node.B().Info().Section("server").Build()).ToString()
		if err != nil || read(info).runID != about.runID {
			continue
		}
		sent := time.Now()
		if parts, err := node.Do(within, node.B().Time().Build()).AsIntSlice(); err == nil && len(parts) == 2 {
			about.Offset = time.Unix(parts[0], 1000*parts[1]).Sub(sent.Add(time.Since(sent) / 2))
		}
		settings, err := node.Do(within, node.B().ConfigGet().Parameter("*").Build()).AsStrMap()
		if err == nil { // CONFIG may be forbidden
			about.Sync = settings["appendfsync"]
			about.Least, _ = strconv.Atoi(settings["min-replicas-to-write"])
		}
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
