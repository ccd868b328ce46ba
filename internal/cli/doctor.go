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
	"github.com/belfry-cron/belfry/internal/config"
	"github.com/belfry-cron/belfry/internal/watchdog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// finding is what a check has found.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // one of the three below
	Found  string `json:"found"`
	// Do says how to make it right.
	Do string `json:"do,omitempty"`
}

// What a finding means.
const (
	isWell  = "ok"
	isNote  = "note" // it works, and could be better
	isWrong = "wrong"
)

const (
	// spaceWanted is less than what a busy server writes in a day; below spaceMin
	// it may stop before anybody looks again.
	spaceWanted = 1 << 30
	spaceMin    = 64 << 20
	// checkTime bounds the look through the store: some gigabytes from a disk.
	checkTime = 30 * time.Second
	// answerWithin bounds how long the server may take to answer.
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
		Short: "Look for what is wrong with a server and its machine",
		Long: `Look for what is wrong with a server and with the machine that it runs on, and say
what to do about each. It changes nothing. It looks at the data directory, so that
it must run on the machine of the server and as its user.

It ends with 1 if anything is wrong. A note is about what works and could be better.`,
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
			wrong := 0
			for _, f := range list {
				if f.Status == isWrong {
					wrong++
				}
			}
			switch wrong {
			case 0:
				return nil
			case 1:
				return failed("1 thing is wrong")
			}
			return failed("%d things are wrong", wrong)
		},
	}
	addStoreFlags(cmd, &file, &flags)
	addOutput(cmd, &output, asTable, asJSON, asYAML, asJSONL, asName)
	return cmd
}

// findingTable writes findings for people, each with what to do below it.
func findingTable(w io.Writer, env Env, list []finding) {
	s := styleFor(env, env.StdoutIsTerminal)
	width := 0
	for _, f := range list {
		width = max(width, len(f.Check))
	}
	for _, f := range list {
		mark := map[string]func(string) string{isWell: s.faint, isNote: s.strong, isWrong: s.wrong}[f.Status]
		fmt.Fprintf(w, "%s  %-*s  %s\n", mark(fmt.Sprintf("%-5s", f.Status)), width, f.Check, oneLine(f.Found))
		if f.Do != "" {
			fmt.Fprintf(w, "%*s  %s\n", width+7, "", oneLine(f.Do))
		}
	}
}

// examine makes all checks.
func examine(ctx context.Context, env Env, c config.Server) []finding {
	pid, running := config.Running(c.Data)
	list := []finding{dataDirectory(c.Data), diskSpace(c.Data), clock(), zoneData(env, c), storeIntegrity(ctx, c.Store)}
	list = append(list, serverAndToken(ctx, env, c, running)...)
	return append(list, watchdogOf(pid, running), controllers())
}

// What access(2) is asked.
const (
	mayEnter = 1
	mayWrite = 2
)

func dataDirectory(dir string) finding {
	f := finding{Check: "data directory", Status: isWrong, Found: dir}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Status, f.Found, f.Do = isNote, dir+" is not there", "belfry serve makes it; --data names another one"
		return f
	case err != nil:
		f.Found, f.Do = err.Error(), "run this as the user of the server"
		return f
	case !info.IsDir():
		f.Found, f.Do = dir+" is no directory", "move it away, or name another one with --data"
		return f
	}
	// Files are made in it. The kernel knows best who may.
	if err := syscall.Access(dir, mayWrite|mayEnter); err != nil {
		f.Found, f.Do = dir+" may not be written by this user", "run this as the user of the server, or give the directory to that user with chown"
		return f
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		f.Status, f.Found, f.Do = isNote, fmt.Sprintf("others on this machine can look into %s: its mode is %04o", dir, mode), "chmod 700 "+dir
		return f
	}
	f.Status = isWell
	return f
}

// existing returns a directory, or the nearest one above it that is there.
func existing(dir string) string {
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

func diskSpace(dir string) finding {
	f := finding{Check: "disk space", Status: isWrong}
	var s syscall.Statfs_t
	if err := syscall.Statfs(existing(dir), &s); err != nil {
		f.Found, f.Do = err.Error(), "run this as the user of the server"
		return f
	}
	free := int64(s.Bavail) * int64(s.Bsize)
	f.Found = job.Size(free>>20<<20).String() + " are free"
	switch {
	case free < spaceMin:
		f.Do = "make room: with a full disk nothing starts"
	case free < spaceWanted:
		f.Status, f.Do = isNote, "a server keeps history and output; keep in its configuration says how much"
	default:
		f.Status = isWell
	}
	return f
}

func zoneData(env Env, c config.Server) finding {
	f := finding{Check: "zone data", Status: isWell, Found: cron.ZoneTableVersion() + ", inside the program"}
	if zone := machineZone(env.Getenv); zone != "" && zone != string(c.Timezone) {
		f.Status, f.Found = isNote, fmt.Sprintf("%s; schedules that name no zone are in %s, the machine is in %s", f.Found, c.Timezone, zone)
		f.Do = "set timezone in the configuration, if that is not meant"
	}
	return f
}

func storeIntegrity(ctx context.Context, s config.Store) finding {
	f := finding{Check: "store", Status: isWrong}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	switch s.Kind() {
	case config.Postgres:
		about, err := postgres.Check(ctx, string(s))
		return databaseOf(f, about, err, "psql with the same host, user and database", "synchronous_commit and fsync to on", "give them to this user, or all tables with alter table … owner to")
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
		f.Status, f.Found, f.Do = isNote, path+" is not there", "belfry serve makes it; belfry restore makes it of a backup"
	case errors.Is(err, store.ErrDamaged):
		f.Found, f.Do = err.Error(), "stop the server, move the file and its -wal away, and restore a backup"
	case err != nil:
		f.Found, f.Do = err.Error(), "run this as the user of the server, with the version of the server"
	case !complete:
		f.Status, f.Found = isNote, fmt.Sprintf("nothing is wrong in what could be looked at in %s", checkTime)
		f.Do = "sqlite3 " + path + " 'pragma integrity_check' looks at all of it"
	default:
		f.Status, f.Found = isWell, path+" is whole"
	}
	return f
}

// writable tells whether this user may write the file of a store, and those beside it.
func writable(path string) error {
	for _, name := range []string{path, path + "-wal", path + "-shm", path + "-lock", path + "-ballast"} {
		if err := syscall.Access(name, mayWrite); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &fs.PathError{Op: "write", Path: name, Err: err}
		}
	}
	return nil
}

// databaseOf says what a look at the database of a store has found. try is how
// people connect to it, durable how it keeps what it acknowledges, and grant how a user
// gets rights.
func databaseOf(f finding, about postgres.About, err error, try, durable, grant string) finding {
	var wrong *postgres.AddressError
	switch {
	case errors.As(err, &wrong):
		f.Found, f.Do = err.Error(), "belfry config, with the same flags, shows where the address is from"
	case err != nil:
		f.Found, f.Do = err.Error(), "see that the database runs, and that this user may connect to it: "+try
	case about.Unusable != nil:
		f.Found, f.Do = about.Unusable.Error(), "belfry version says which one this is"
	case len(about.Denied) > 0:
		f.Found = about.Server + ", where the user of the address may not " + strings.Join(about.Denied, "; nor ")
		f.Do = "servers do that, at the latest when they are upgraded: " + grant
	case !about.Durable:
		f.Status, f.Found = isNote, about.String()
		f.Do = "a crash of the database may lose what it has acknowledged: set " + durable
	case about.Offset.Abs() > offsetMax:
		f.Status, f.Found = isNote, about.String()
		f.Do = "synchronize the clocks of both machines; jobs go by that of the database"
	default:
		f.Status, f.Found = isWell, about.String()
	}
	return f
}

// offsetMax is how far the clocks of machines may be apart without a word.
const offsetMax = time.Second

// serverAndToken asks the server of the data directory for its nodes.
func serverAndToken(ctx context.Context, env Env, c config.Server, running bool) []finding {
	server, token := finding{Check: "server", Status: isWrong}, finding{Check: "token", Status: isNote, Found: "not tried: there is no server to try it on"}
	if !running {
		server.Found, server.Do = "no server runs on "+c.Data+", or this user may not know of it", "belfry serve runs one; run this as its user"
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
		server.Status, server.Found = isNote, "runs, and was not asked"
		token.Status, token.Found = isWrong, err.Error()
		token.Do = "no command of this user can ask before; what others may have read is best replaced: belfry token reset, while the server is stopped"
	case err == nil:
		server.Status, server.Found = isWell, "answers at "+remote.URL()
		token.Status, token.Found = isWell, "is taken"
		return []finding{server, token, rolesOf(nodes.Items)}
	case errors.As(err, &f) && f.problem != nil && f.problem.Type == client.TypeElsewhere:
		server.Status, server.Found = isWell, "answers at "+remote.URL()+", without the role api"
		token.Status, token.Found = isWell, "is taken"
	case errors.As(err, &f) && f.code == ExitNotAllowed && remote.noToken != "":
		server.Status, server.Found = isWell, "answers at "+remote.URL()
		token.Found, token.Do = "not tried: none is here", remote.noToken
	case errors.As(err, &f) && f.code == ExitNotAllowed:
		server.Status, server.Found = isWell, "answers at "+remote.URL()
		token.Status, token.Found, token.Do = isWrong, f.message, cmp.Or(f.hint, "belfry token create makes another one, with the token of an administrator")
	default:
		server.Found, server.Do = err.Error(), "its log says what it waits for"
	}
	return []finding{server, token}
}

// rolesOf says which part of the work no server does.
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
		f.Status, f.Do = isWrong, "give it to a server of this store: --roles "+strings.Join(missing, ",")
	}
	return f
}

// watchdogOf looks for the process beside the server that ends commands when it
// dies.
func watchdogOf(pid int, running bool) finding {
	f := finding{Check: "watchdog", Status: isNote}
	if !running {
		f.Found = "not there: it runs beside a server"
		return f
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		f.Found = "cannot be seen on this system"
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
		// The name of the program is in parentheses and may hold anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			f.Status, f.Found = isWell, "runs beside the server"
			return f
		}
	}
	f.Status, f.Found = isWrong, fmt.Sprintf("there is none beside the server, process %d: commands go on if it dies", pid)
	f.Do = "start the server again; its log says why the watchdog has ended"
	return f
}

// controllers tells whether limits of memory and CPU can be those of a whole run.
func controllers() finding {
	f := finding{Check: "cgroup controllers", Status: isNote, Do: "limits of memory and CPU then count for each process by itself; jobs without limits need none"}
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
		f.Found = "the cgroup of this process has not: " + strings.Join(missing, ", ")
		return f
	}
	f.Status, f.Found, f.Do = isWell, "memory and cpu are there", ""
	return f
}
