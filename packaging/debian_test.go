//go:build servers && linux

package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds each step on a busy machine.
const patience = 2 * time.Minute

// systemctl takes the place of systemd's, which does not run in a chroot.
//
//go:embed testdata/systemctl
var systemctl []byte

// debian is a root directory with a minimal Debian.
type debian struct {
	t    *testing.T
	root string
	port int
}

// newDebian creates a fresh root. debootstrap creates it once; later tests unpack a copy.
func newDebian(t *testing.T) *debian {
	t.Helper()
	root, err := os.MkdirTemp("", "belfry-debian-")
	if err != nil {
		t.Fatal(err)
	}
	d := &debian{t: t, root: root, port: freePort(t)}
	t.Cleanup(d.close)
	if out, err := exec.Command("tar", "-C", root, "--numeric-owner", "-xf", debianCopy(t)).CombinedOutput(); err != nil {
		t.Fatalf("unpack Debian: %v\n%s", err, out)
	}
	if err := os.Chmod(root, 0o755); err != nil { // other users must enter it
		t.Fatal(err)
	}
	if err := syscall.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		t.Fatalf("mount /proc, which servers need: %v", err)
	}
	d.write("/usr/bin/systemctl", string(systemctl), 0o755)
	d.must("mkdir", "-p", "/run/systemd/system", "/etc/belfry")
	// An unused port, in a file that packages must keep.
	d.write("/etc/belfry/belfry.yaml", fmt.Sprintf("listen: 127.0.0.1:%d\n", d.port), 0o644)
	return d
}

// debianCopy returns a tar file of the root from debootstrap and this machine's mirror. It stays in
// the user's cache.
func debianCopy(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	mirror, suite := debianMirror()
	file := filepath.Join(cache, "belfry-test", fmt.Sprintf("debian-%s-%s.tar", suite, runtime.GOARCH))
	if _, err := os.Stat(file); err == nil {
		return file
	}
	if _, err := exec.LookPath("debootstrap"); err != nil {
		t.Fatal("debootstrap is missing, which makes the Debian that packages are installed in; test/servers/install.sh installs it")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "belfry-debootstrap-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // for a slow mirror on a busy machine
	defer cancel()
	began := time.Now()
	if out, err := exec.CommandContext(ctx, "debootstrap", "--variant=minbase", suite, dir, mirror).CombinedOutput(); err != nil {
		t.Fatalf("debootstrap %s %s: %v\n%s", suite, mirror, err, out)
	}
	part := file + ".part"
	if out, err := exec.CommandContext(ctx, "tar", "-C", dir, "--numeric-owner", "--exclude=./var/cache/apt/archives/*", "-cf", part, ".").CombinedOutput(); err != nil {
		t.Fatalf("pack Debian: %v\n%s", err, out)
	}
	if err := os.Rename(part, file); err != nil {
		t.Fatal(err)
	}
	t.Logf("made %s by debootstrap in %v", file, time.Since(began).Round(time.Second))
	return file
}

// debianMirror returns the mirror and the release that apt has on this machine.
func debianMirror() (mirror, suite string) {
	out, _ := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)", "Created-By: Packages").Output()
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 4 && f[3] == "Debian" && f[2] == "main" && !strings.Contains(f[1], "-") && strings.HasPrefix(f[0], "http") {
			return f[0], f[1]
		}
	}
	return "http://deb.debian.org/debian", "bookworm"
}

// freePort returns a free port, which no connection uses by chance: systems assign ports from 32768
// on.
func freePort(t *testing.T) int {
	t.Helper()
	const from, below, tries = 10_000, 32_768, 100
	for range tries {
		port := from + rand.IntN(below-from)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// close ends the processes in the root and removes it.
func (d *debian) close() {
	d.kill()
	if err := syscall.Unmount(filepath.Join(d.root, "proc"), syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
		d.t.Errorf("unmount /proc: %v; %s stays", err, d.root)
		return
	}
	if err := os.RemoveAll(d.root); err != nil {
		d.t.Error(err)
	}
}

// kill ends the processes in the root.
func (d *debian) kill() {
	for range 100 { // a process may start others before it ends
		left := d.processes()
		if len(left) == 0 {
			break
		}
		for _, id := range left {
			_ = syscall.Kill(id, syscall.SIGKILL)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// processes returns the processes with this root.
func (d *debian) processes() (ids []int) {
	roots, _ := filepath.Glob("/proc/[0-9]*/root")
	for _, link := range roots {
		if to, err := os.Readlink(link); err == nil && to == d.root {
			if id, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// run runs a command in the root, as root.
func (d *debian) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/env", append([]string{"--"}, args...)...)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: d.root}
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "HOME=/root", "LC_ALL=C.UTF-8"}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%v: %w\n%s%s", args, err, out.Bytes(), said.Bytes())
	}
	return out.String(), nil
}

func (d *debian) must(args ...string) string {
	d.t.Helper()
	out, err := d.run(args...)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(d.root, "var/log/belfry.log"))
		calls, _ := os.ReadFile(filepath.Join(d.root, "var/log/systemctl.log"))
		d.t.Fatalf("%v\nthe server said:\n%s\nsystemctl was called:\n%s", err, log, calls)
	}
	return out
}

func (d *debian) write(name, text string, mode fs.FileMode) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.root, name), []byte(text), mode); err != nil {
		d.t.Fatal(err)
	}
}

// put copies a package into the root.
func (d *debian) put(file string) string {
	d.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		d.t.Fatal(err)
	}
	name := "/tmp/" + filepath.Base(file)
	d.write(name, string(text), 0o644)
	return name
}

// wait waits until a condition holds.
func (d *debian) wait(what string, so func() error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	for {
		err := so()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(d.root, "var/log/belfry.log"))
			d.t.Fatalf("%s: %v\nthe server said:\n%s", what, err, log)
		case <-time.After(300 * time.Millisecond): // the condition often starts a program
		}
	}
}

func (d *debian) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(d.root, name))
	return err == nil
}

// user reports whether the user of jobs exists.
func (d *debian) user() bool {
	_, err := d.run("getent", "passwd", "belfry")
	return err == nil
}

// server returns the process of the server; 0 is none.
func (d *debian) server() int {
	text, err := os.ReadFile(filepath.Join(d.root, "run/belfry.pid"))
	if err != nil {
		return 0
	}
	id, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !slices.Contains(d.processes(), id) {
		return 0
	}
	return id
}

// answers waits until a server of a version answers.
func (d *debian) answers(version string) {
	d.t.Helper()
	d.wait("a server of version "+version, func() error {
		out, err := d.run("belfry", "node", "list", "-o", "json")
		if err == nil && !strings.Contains(out, `"`+version+`"`) {
			err = fmt.Errorf("the nodes are %s", out)
		}
		return err
	})
}

// newer builds the packages of the next release, once: deb and rpm.
var newer = sync.OnceValues(func() ([]string, error) {
	dir := made.dir + "-newer"
	r := release{version: "1.2.3", dir: dir, platforms: []platform{here}}
	var err error
	if r.root, err = filepath.Abs(".."); err != nil {
		return nil, err
	}
	ctx, stage := context.Background(), filepath.Join(dir, "stage")
	if err := r.build(ctx, here, stage); err != nil {
		return nil, err
	}
	if r.date, err = r.dateOf(ctx); err != nil {
		return nil, err
	}
	if err := r.documents(ctx, stage); err != nil {
		return nil, err
	}
	names, err := r.packages(here, stage)
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names, err
})

// underACommand calls a function during a long command, which must have one attempt, in one
// process.
func (d *debian) underACommand(job string, do func()) {
	d.t.Helper()
	at := "/home/belfry/" + job
	d.must("belfry", "job", "create", job, "--", fmt.Sprintf("echo $$ >%s; while test ! -e %s-go; do sleep 0.1; done; echo it has ended", at, at))
	d.must("belfry", "job", "run", job)
	var command int
	d.wait("the command runs", func() error {
		text, err := os.ReadFile(filepath.Join(d.root, at))
		if err == nil {
			command, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	do()
	if !slices.Contains(d.processes(), command) {
		d.t.Fatal("the command has ended with the old version")
	}
	d.write(at+"-go", "", 0o644)
	d.wait("the command ends", func() error {
		out, err := d.run("belfry", "run", "list", "--job", job, "-o", "json")
		if err == nil && !strings.Contains(strings.ReplaceAll(out, " ", ""), `"outcome":"succeeded"`) {
			err = errors.New(out)
		}
		if err == nil && !strings.Contains(strings.ReplaceAll(out, " ", ""), `"attempt":1`) {
			d.t.Errorf("the run has other attempts than one: %s", out)
		}
		return err
	})
	if out := d.must("belfry", "logs", job); !strings.Contains(out, "it has ended") {
		d.t.Errorf("the command printed %q", out)
	}
}

// givesStrangersNothing looks at the installed package as another user of the machine, while a server and a command run:
// nothing can be written or connected to, and no file, argument or variable that can be read has the token.
func (d *debian) givesStrangersNothing() {
	d.t.Helper()
	token, err := os.ReadFile(filepath.Join(d.root, "var/lib/belfry/token"))
	if err != nil {
		d.t.Fatal(err)
	}
	stranger := func(script string) string {
		d.t.Helper()
		return d.must("setpriv", "--reuid=daemon", "--regid=daemon", "--clear-groups", "--no-new-privs", "sh", "-c", script)
	}
	if out := stranger("id -un; cat /etc/belfry/belfry.yaml >/dev/null && echo reads"); out != "daemon\nreads\n" {
		d.t.Fatalf("the stranger is and can %q", out)
	}
	d.must("belfry", "job", "create", "lasting", "--", "while test ! -e /home/belfry/seen; do sleep 0.1; done")
	d.must("belfry", "job", "run", "lasting")
	d.wait("the command runs", func() error {
		out, err := d.run("belfry", "run", "list", "--job", "lasting", "-o", "json")
		if err == nil && !strings.Contains(strings.ReplaceAll(out, " ", ""), `"state":"running"`) {
			err = errors.New(out)
		}
		return err
	})
	const sticky = "-type d -perm -1000" // such as /tmp: others cannot touch what is in there
	if out := stranger("find / -xdev -path /dev -prune -o ! -type l -writable ! \\( " + sticky + " \\) -print 2>/dev/null; true"); out != "" {
		d.t.Errorf("another user may write or connect to\n%s", out)
	}
	if out := stranger("ls -A /var/lib/belfry 2>/dev/null; true"); out != "" {
		d.t.Errorf("another user sees\n%s", out)
	}
	d.write("/etc/searched", strings.TrimSpace(string(token)), 0o600)
	d.must("chown", "daemon", "/etc/searched")
	if out := stranger("grep -rlsF -f /etc/searched --exclude=searched /etc /home /opt /root /run /srv /tmp /usr/lib/systemd /var /proc/[0-9]*/cmdline /proc/[0-9]*/environ; true"); out != "" {
		d.t.Errorf("another user finds the token in\n%s", out)
	}
	d.must("rm", "/etc/searched")
	if out := stranger("belfry node list 2>&1 || echo refused"); !strings.HasSuffix(out, "refused\n") {
		d.t.Errorf("another user without a token is told %q", out)
	}
	d.write("/home/belfry/seen", "", 0o644)
}

func TestThePackageLivesOnDebian(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can install packages into a root, so that none is installed")
	}
	d := newDebian(t)
	next, err := newer()
	if err != nil {
		t.Fatal(err)
	}
	candidate, release := d.put(file(t, ".deb")), d.put(next[0])
	install := func(pkg string) { t.Helper(); d.must("dpkg", "--force-confold", "--install", pkg) }

	install(candidate)
	d.answers(testVersion)
	if info, err := os.Stat(filepath.Join(d.root, "var/lib/belfry")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data directory has mode %v, %v", info, err)
	}
	d.must("belfry", "job", "create", "who", "--", "id -un")
	if out := d.must("belfry", "job", "run", "who", "--logs"); !strings.Contains(out, "belfry") {
		t.Errorf("jobs run as %q", out)
	}
	if out := d.must("belfry", "version"); !strings.HasPrefix(out, "belfry "+testVersion+",") {
		t.Errorf("the program is %q", out)
	}

	d.givesStrangersNothing()

	server := d.server()
	d.underACommand("upgrade", func() {
		install(release)
		d.answers("1.2.3")
	})
	if d.server() != server {
		t.Errorf("the server was process %d and is %d", server, d.server())
	}
	if text, err := os.ReadFile(filepath.Join(d.root, "etc/belfry/belfry.yaml")); err != nil || !strings.HasPrefix(string(text), "listen:") {
		t.Errorf("the configuration is now %q, %v", text, err)
	}

	d.must("dpkg", "--remove", "belfry")
	if d.server() != 0 {
		t.Error("the server runs without its package")
	}
	for name, stays := range map[string]bool{
		"/usr/bin/belfry": false, "/usr/lib/systemd/system/belfry.service": false, "/usr/share/man/man1/belfry.1": false,
		"/var/lib/belfry/belfry.db": true, "/etc/belfry/belfry.yaml": true, "/etc/default/belfry": true,
	} {
		if d.exists(name) != stays {
			t.Errorf("after a removal %s exists: %v", name, !stays)
		}
	}
	if !d.user() {
		t.Error("a removal removes the user")
	}

	install(release)
	d.answers("1.2.3")
	if out := d.must("belfry", "job", "list"); !strings.Contains(out, "who") {
		t.Errorf("after another installation the jobs are %q", out)
	}

	d.must("dpkg", "--purge", "belfry")
	for _, name := range []string{"/usr/bin/belfry", "/var/lib/belfry", "/etc/belfry", "/etc/default/belfry", "/home/belfry", "/etc/systemd/system/multi-user.target.wants/belfry.service"} {
		if d.exists(name) {
			t.Errorf("after a purge %s exists", name)
		}
	}
	if d.user() || d.server() != 0 {
		t.Error("after a purge the user or the server exists")
	}
	d.wait("nothing runs after a purge", func() error {
		if left := d.processes(); len(left) > 0 {
			return fmt.Errorf("the processes %v are left", left)
		}
		return nil
	})
}

// TestThePackageForRedHatLivesInARoot runs the scripts of the rpm package in the root of Debian,
// since there is no Red Hat to install.
func TestThePackageForRedHatLivesInARoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can install packages into a root, so that none is installed")
	}
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Fatal("rpm is missing; test/servers/install.sh installs it")
	}
	d := newDebian(t)
	next, err := newer()
	if err != nil {
		t.Fatal(err)
	}
	rpm := func(args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if out, err := exec.CommandContext(ctx, "rpm", append([]string{"--root", d.root, "--nodeps"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("rpm %v: %v\n%s", args, err, out)
		}
	}
	rpm("--install", file(t, ".rpm"))
	if !d.user() || d.server() != 0 {
		t.Errorf("the user exists: %v; the server runs as %d", d.user(), d.server())
	}
	d.must("systemctl", "enable", "--now", "belfry.service")
	d.answers(testVersion)
	server := d.server()
	d.underACommand("upgrade", func() {
		rpm("--upgrade", next[1])
		d.answers("1.2.3")
	})
	if d.server() != server {
		t.Errorf("the server was process %d and is %d", server, d.server())
	}
	rpm("--erase", "belfry")
	if d.server() != 0 || d.exists("/usr/bin/belfry") || d.exists("/etc/systemd/system/multi-user.target.wants/belfry.service") {
		t.Error("the server or its program exists without the package")
	}
	if !d.exists("/var/lib/belfry/belfry.db") || !d.user() {
		t.Error("a removal removes data or the user")
	}
	log, err := os.Open(filepath.Join(d.root, "var/log/systemctl.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), " is not known") {
			t.Error(lines.Text())
		}
	}
}
