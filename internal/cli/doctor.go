package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/health"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/etcd"
	"github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/redis"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// finding is the result of a check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // one of the three below, or mended
	Found  string `json:"found"`
	// Do describes the remedy.
	Do string `json:"do,omitempty"`
}

// ofMachine converts a finding about the machine.
func ofMachine(f health.Finding) finding {
	return finding{f.Check.String(), f.Status, f.Found.String(), f.Do.String()}
}

// ofHint returns a hint of a server as a finding.
func ofHint(h client.Hint) finding { return finding{h.Check, h.Status, h.Found, h.Do} }

// The meanings of a finding.
const (
	isWell  = health.Well
	isNote  = health.Note
	isWrong = health.Wrong
)

const (
	// checkTime bounds the check of the store: some gigabytes from a disk.
	checkTime = 30 * time.Second
	// answerWithin bounds an answer of the server.
	answerWithin = 5 * time.Second
)

func newDoctor(env Env) *cobra.Command {
	var (
		file   string
		flags  config.Server
		output string
	)
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check a server and its machine for problems",
		Long: `Check a server and its machine for problems, and suggest a fix for each. It changes
nothing. It reads the data directory, so run it on the machine of the server and
as its user.

The exit code is 1 if there is a problem. A note is a suggestion about something that
works.`,
		Example: "belfry doctor\nbelfry doctor --config /etc/belfry.yaml\nbelfry doctor -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, c, err := serverConfig(env, file, flags)
			if err != nil {
				return err
			}
			list := examine(cmd.Context(), env, c)
			if err := showList(env, output, list, "", func(f finding) string { return f.Check }, func(w io.Writer) { findingTable(w, env, list) }); err != nil {
				return err
			}
			return problems(list)
		},
	}
	addStoreFlags(cmd, &file, &flags)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

// findingTable writes findings for people, each followed by its remedy.
func findingTable(w io.Writer, env Env, list []finding) {
	s := styleFor(env, env.StdoutIsTerminal)
	width, status := 0, len(isWrong)
	for _, f := range list {
		width, status = max(width, len(f.Check)), max(status, len(f.Status))
	}
	for _, f := range list {
		mark := map[string]func(string) string{isWell: s.faint, isNote: s.strong, isWrong: s.wrong, isMended: s.strong}[f.Status]
		fmt.Fprintf(w, "%s  %-*s  %s\n", mark(fmt.Sprintf("%-*s", status, f.Status)), width, f.Check, oneLine(f.Found))
		if f.Do != "" {
			fmt.Fprintf(w, "%*s  %s\n", width+status+2, "", oneLine(f.Do))
		}
	}
}

// examine makes all checks.
func examine(ctx context.Context, env Env, c config.Server) []finding {
	pid, running := config.Running(c.Data)
	list := []finding{ofMachine(health.DataDirectory(c.Data)), ofMachine(health.DiskSpace(c.Data)), clock(), zoneData(env, c), storeIntegrity(ctx, "store", c.Store)}
	if c.History != "" {
		list = append(list, historyStore(ctx, c.History), historyBehind(ctx, c.Store))
	}
	list = append(list, serverAndToken(ctx, env, c, running)...)
	if c.OIDC.Issuer != "" {
		list = append(list, signIn(ctx, env, c))
	}
	return append(list, watchdogOf(pid, running), ofMachine(health.Separation(c)), ofMachine(health.Shell(c)), ofMachine(health.Containers(ctx, c)), ofMachine(health.Backup(c, env.Now())), controllers())
}

func zoneData(env Env, c config.Server) finding {
	f := finding{Check: "zone data", Status: isWell, Found: cron.ZoneTableVersion() + ", built in"}
	if zone := machineZone(env.Getenv); zone != "" && zone != string(c.Timezone) {
		f.Status, f.Found = isNote, fmt.Sprintf("%s; schedules without a zone use %s, the machine is in %s", f.Found, c.Timezone, zone)
		f.Do = "set timezone in the configuration to change that"
	}
	return f
}

func storeIntegrity(ctx context.Context, check string, s config.Store) finding {
	f := finding{Check: check, Status: isWrong}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	switch s.Kind() {
	case config.Postgres:
		about, err := postgres.Check(ctx, string(s))
		return databaseOf(f, about, err, "psql with the same host, user and database", "synchronous_commit and fsync to on", "give them to this user, or all tables with alter table … owner to")
	case config.Etcd:
		about, err := etcd.Check(ctx, string(s))
		return etcdOf(f, about, err)
	case config.Redis:
		about, err := redis.Check(ctx, string(s))
		return redisOf(f, about, err)
	case config.MySQL:
		about, err := mysql.Check(ctx, string(s))
		return databaseOf(f, about, err, "mysql with the same host, user and database", "innodb_flush_log_at_trx_commit to 1, and sync_binlog where there is a binary log", "grant all on the database to this user")
	}
	path := s.File()
	complete, err := sqlite.Check(ctx, path)
	if err == nil {
		err = writable(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Status, f.Found, f.Do = isNote, path+" does not exist", "belfry serve creates it; belfry restore creates it from a backup"
	case errors.Is(err, store.ErrDamaged):
		f.Found, f.Do = err.Error(), "stop the server, move the file and its -wal away, and restore a backup"
	case err != nil:
		f.Found, f.Do = err.Error(), "run this as the user of the server, with the version of the server"
	case !complete:
		f.Status, f.Found = isNote, fmt.Sprintf("no damage found in %s, as far as it was checked", checkTime)
		f.Do = "sqlite3 " + path + " 'pragma integrity_check' checks all of it"
	default:
		f.Status, f.Found = isWell, path+" is whole"
	}
	return f
}

// writable reports whether this user may write the file of a store, and the files beside it.
func writable(path string) error {
	for _, name := range []string{path, path + "-wal", path + "-shm", path + "-lock", path + "-ballast"} {
		if err := syscall.Access(name, health.MayWrite); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &fs.PathError{Op: "write", Path: name, Err: err}
		}
	}
	return nil
}

// databaseOf reports the findings of a check of the store's database. try is how people connect,
// durable how acknowledged writes are kept, and grant how a user gets rights.
func databaseOf(f finding, about postgres.About, err error, try, durable, grant string) finding {
	var wrong *postgres.AddressError
	switch {
	case errors.As(err, &wrong):
		f.Found, f.Do = err.Error(), "belfry config, with the same flags, shows where the address comes from"
	case err != nil:
		f.Found, f.Do = err.Error(), "check that the database is running and this user may connect: "+try
	case about.Unusable != nil:
		f.Found, f.Do = about.Unusable.Error(), "belfry version prints the version of this program"
	case len(about.Denied) > 0:
		f.Found = about.Server + ", where this user may not " + strings.Join(about.Denied, "; nor ")
		f.Do = "servers do that, at the latest when they are upgraded: " + grant
	case !about.Durable:
		f.Status, f.Found = isNote, about.String()
		f.Do = "a crash of the database may lose acknowledged writes: set " + durable
	case about.Offset.Abs() > offsetMax:
		f.Status, f.Found = isNote, about.String()
		f.Do = "synchronize the clocks of both machines; jobs follow the clock of the database"
	default:
		f.Status, f.Found = isWell, about.String()
	}
	return f
}

// etcdOf reports the findings of a check of an etcd cluster.
func etcdOf(f finding, about etcd.About, err error) finding {
	var wrong *etcd.AddressError
	switch {
	case errors.As(err, &wrong):
		f.Found, f.Do = err.Error(), "belfry config, with the same flags, shows where the address comes from"
	case err != nil:
		f.Found, f.Do = err.Error(), "see that the cluster runs, and that this user may connect to it: etcdctl endpoint status"
	case about.Full:
		f.Found = about.String() + "; its database is full, and nothing is written"
		f.Do = "etcdctl defrag, then etcdctl alarm disarm"
	case about.NearlyFull():
		f.Found = about.String() + "; it is nearly full, and with less than a tenth left no run starts"
		f.Do = "raise --quota-backend-bytes of etcd, or keep history in another store with --history"
	case about.IsLoose():
		f.Status, f.Found = isNote, about.String()
		f.Do = "etcdctl defrag gives the rest back to the disk, one member after the other"
	default:
		f.Status, f.Found = isWell, about.String()
	}
	return f
}

// redisOf reports the findings of a check of a Redis server.
func redisOf(f finding, about redis.About, err error) finding {
	var wrong *redis.AddressError
	switch {
	case errors.As(err, &wrong):
		f.Found, f.Do = err.Error(), "belfry config, with the same flags, shows where the address comes from"
	case err != nil:
		f.Found, f.Do = err.Error(), "check that the server is running and this user may connect: redis-cli with the same host, user and password"
	case about.Most > 0 && about.Used > about.Most/10*9:
		f.Found = about.String() + "; its memory is nearly full, and nothing new is claimed"
		f.Do = "raise maxmemory, or keep less history"
	case !about.Durable():
		f.Status, f.Found = isNote, about.String()
		f.Do = "set appendonly to yes and appendfsync to always"
	case about.Replicas > 0 && about.Wait == 0:
		f.Status, f.Found = isNote, about.String()
		f.Do = "add wait=1 to the address of the store, so that a failover loses no step"
	case about.Offset.Abs() > offsetMax:
		f.Status, f.Found = isNote, about.String()
		f.Do = "synchronize the clocks of both machines; jobs follow the clock of the server"
	default:
		f.Status, f.Found = isWell, about.String()
	}
	return f
}

// offsetMax is the difference of machines' clocks from which it is reported.
const offsetMax = time.Second

// serverAndToken requests the nodes from the server of the data directory.
func serverAndToken(ctx context.Context, env Env, c config.Server, running bool) []finding {
	server, token := finding{Check: "server", Status: isWrong}, finding{Check: "token", Status: isNote, Found: "not checked: no server is running"}
	if !running {
		server.Found, server.Do = "no server is running on "+c.Data+", or this user may not see it", "start one with belfry serve, and run this as its user"
		return []finding{server, token}
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	remote, err := connect(env, config.Asked{Data: c.Data})
	var nodes client.Page[client.Node]
	if err == nil {
		nodes, err = remote.Nodes(ctx)
		err = remote.refused(err)
	}
	var f *failure
	switch {
	case remote == nil:
		server.Status, server.Found = isNote, "is running and was not queried"
		token.Status, token.Found = isWrong, err.Error()
		token.Do = "commands of this user cannot use it before; others may have read it, so better replace it: belfry token reset, while the server is stopped"
	case err == nil:
		server.Status, server.Found = isWell, "answers at "+remote.URL()
		token.Status, token.Found = isWell, "accepted"
		return append([]finding{server, token, rolesOf(nodes.Items), barredJobs(ctx, remote), occurrences(ctx, remote), openSecrets(ctx, remote), countsOfHistory(ctx, env, remote)}, channelsOf(ctx, remote, c)...)
	case errors.As(err, &f) && f.problem != nil && f.problem.Type == client.TypeElsewhere:
		server.Status, server.Found = isWell, "answers at "+remote.URL()+", without the role api"
		token.Status, token.Found = isWell, "accepted"
	case errors.As(err, &f) && f.code == ExitNotAllowed && remote.noToken != "":
		server.Status, server.Found = isWell, "answers at "+remote.URL()
		token.Found, token.Do = "not checked: no token on this machine", remote.noToken
	case errors.As(err, &f) && f.code == ExitNotAllowed:
		server.Status, server.Found = isWell, "answers at "+remote.URL()
		token.Status, token.Found, token.Do = isWrong, f.message, cmp.Or(f.hint, "create another one with belfry token create, as an administrator")
	default:
		server.Found, server.Do = err.Error(), "its log says what it is waiting for"
	}
	return []finding{server, token}
}

// rolesOf reports which part of the work no server does.
func rolesOf(nodes []client.Node) finding {
	f := finding{Check: "roles", Status: isWell}
	has := map[string]int{}
	for _, n := range nodes {
		if n.State == string(store.SessionLive) || n.State == string(store.SessionDrained) {
			for _, role := range n.Roles {
				has[role]++
			}
		}
	}
	var list, missing []string
	for _, role := range config.Role("").Values() {
		list = append(list, fmt.Sprintf("%s %d", role, has[role]))
		if has[role] == 0 {
			missing = append(missing, role)
		}
	}
	f.Found = "live nodes by role: " + strings.Join(list, ", ")
	if len(missing) > 0 {
		f.Status, f.Do = isWrong, "start a server on this store with --roles "+strings.Join(missing, ",")
	}
	return f
}

// barredJobs names jobs that no live node may run, and the reason of the first one.
func barredJobs(ctx context.Context, server *remote) finding {
	f := finding{Check: "jobs", Status: isWell, Found: "each has a node that may run it, as far as they were examined"}
	page, err := server.Attention(ctx, "")
	if err != nil {
		f.Status, f.Found = isNote, "not checked: "+server.refused(err).Error()
		return f
	}
	var names []string
	for _, a := range page.Items {
		if a.Kind == client.AttentionBarred {
			names = append(names, a.Job)
			f.Do = cmp.Or(f.Do, a.Text)
		}
	}
	if len(names) > 0 {
		f.Status, f.Found = isWrong, fmt.Sprintf("no live node may run %s: %s", counted(len(names), "job"), shortList(names))
	}
	return f
}

// occurrences names what the servers found when they compared schedules with history.
func occurrences(ctx context.Context, server *remote) finding {
	f := finding{Check: "occurrences", Status: isWell, Found: "each has one run or one record, as far as servers have compared the last day"}
	page, err := server.Attention(ctx, "")
	if err != nil {
		f.Status, f.Found = isNote, "not checked: "+server.refused(err).Error()
		return f
	}
	for i := range page.Items {
		if a := &page.Items[i]; a.Kind == client.AttentionOccurrence {
			f.Status, f.Found = isWrong, fmt.Sprintf("job %s: %s", a.Job, a.Text)
			f.Do = "run the work by hand if it matters, see whether the store was restored, failed over or lost steps, and report it with belfry audit --action occurrence"
			return f
		}
	}
	return f
}

// openSecrets reports whether the server can open all secrets of its store.
func openSecrets(ctx context.Context, server *remote) finding {
	f := finding{Check: "secrets", Status: isWell, Found: "the server opens all that are in the store"}
	about, err := server.Server(ctx)
	if err != nil {
		f.Status, f.Found = isNote, "not checked: "+server.refused(err).Error()
		return f
	}
	for _, h := range about.Hints {
		if h.Check == f.Check {
			f.Status, f.Found, f.Do = h.Status, h.Found, h.Do
		}
	}
	return f
}

// watchdogOf finds the server's watchdog process, which ends commands when the server dies.
func watchdogOf(pid int, running bool) finding {
	f := finding{Check: "watchdog", Status: isNote}
	if !running {
		f.Found = "not running, because no server is"
		return f
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		f.Found = "not visible on this system"
		return f
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range files {
		line, err := os.ReadFile(name)
		if err != nil || !bytes.HasSuffix(line, []byte("\x00"+watchdog.Argument+"\x00")) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(name), "stat"))
		if err != nil {
			continue
		}
		// The program's name, in parentheses, may have any characters.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			f.Status, f.Found = isWell, "runs beside the server"
			return f
		}
	}
	f.Status, f.Found = isWrong, fmt.Sprintf("none beside the server, process %d: its commands would survive it", pid)
	f.Do = "restart the server; its log says why the watchdog ended"
	return f
}

// controllers reports whether limits of memory and CPU can hold for a whole run.
func controllers() finding {
	f := finding{Check: "cgroup controllers", Status: isNote, Do: "limits of memory and CPU then apply to each process instead of the run as a whole"}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		f.Found = "this system has no cgroups"
		return f
	}
	_, path, unified := strings.Cut("\n"+string(own), "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	available, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "cgroup.controllers"))
	if !unified || err != nil {
		f.Found = "cgroup v2 is not mounted at /sys/fs/cgroup"
		return f
	}
	var missing []string
	for _, name := range []string{"memory", "cpu"} {
		if !bytes.Contains([]byte(" "+strings.TrimSpace(string(available))+" "), []byte(" "+name+" ")) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		f.Found = "missing in the cgroup of this process: " + strings.Join(missing, ", ")
		return f
	}
	f.Status, f.Found, f.Do = isWell, "memory and cpu", ""
	return f
}
