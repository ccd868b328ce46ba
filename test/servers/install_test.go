package servers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a Debian without the programs of the tests, and an apt-get that notes its calls.
func machine(t *testing.T, aptGet string) (run func(args ...string) (string, error), calls string) {
	t.Helper()
	root := t.TempDir()
	bin := filepath.Join(root, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bash", "grep", "sed", "mkdir", "sleep", "cat"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	calls = filepath.Join(root, "calls")
	for name, text := range map[string]string{"id": "echo 0", "apt-get": "echo \"$*\" >> '" + calls + "'\n" + aptGet, "redis-server": "", "fc-list": "echo a font", "rpm": "", "cron": ""} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!"+filepath.Join(bin, "bash")+"\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "bash"), append([]string{"install.sh"}, args...)...)
		cmd.Env = []string{"PATH=" + bin, "ROOT=" + root, "PAUSE=0"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}, calls
}

const missing = "postgresql pgbouncer mariadb-server chromium-headless-shell podman runc netavark uidmap docker.io busybox-static spin gcc libc6-dev python3 nodejs debootstrap minisign"

func TestMissingPackagesAreNamedAndNothingIsInstalled(t *testing.T) {
	run, calls := machine(t, "")
	if out, err := run("missing"); err != nil || strings.TrimSpace(out) != missing {
		t.Errorf("missing are %q, %v; want %q", out, err, missing)
	}
	if text, err := os.ReadFile(calls); err == nil {
		t.Errorf("apt-get was called: %s", text)
	}
}

func TestAnInstallationSaysFirstWhatItInstallsAndWhy(t *testing.T) {
	run, calls := machine(t, `case "$*" in *--assume-no*) echo 'Need to get 120 MB of archives.'; exit 1;; esac`)
	out, err := run()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	at := -1
	for _, part := range []string{"will be installed", "DEPS=no", "postgresql", "for the stores on PostgreSQL", "chromium", "for the pages of the web UI", "Need to get 120 MB"} {
		next := strings.Index(out, part)
		if next < at {
			t.Errorf("it says\n%s\nwithout %q, or too late", out, part)
		}
		at = next
	}
	text, err := os.ReadFile(calls)
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(text)), "install -y -qq --no-install-recommends "+missing) {
		t.Errorf("apt-get was called with\n%s, %v", text, err)
	}
}

func TestABusyPackageManagerIsWaitedFor(t *testing.T) {
	run, _ := machine(t, `case "$*" in
*--assume-no*) exit 1;;
update*) n=0; [ ! -e "$ROOT/busy" ] || n=$(cat "$ROOT/busy"); echo $((n + 1)) > "$ROOT/busy"
  if [ $n -lt 2 ]; then echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7' >&2; exit 100; fi;;
esac`)
	out, err := run()
	if err != nil || strings.Count(out, "waiting for its end") != 1 {
		t.Errorf("it says %s, %v", out, err)
	}
}

func TestAnotherMistakeOfAptIsShown(t *testing.T) {
	run, _ := machine(t, `echo 'E: Unable to locate package' >&2; exit 100`)
	if out, err := run(); err == nil || !strings.Contains(out, "E: Unable to locate package") || strings.Contains(out, "waiting") {
		t.Errorf("it says %s, %v", out, err)
	}
}

// makeOn returns the commands that make would run on the machine.
func makeOn(t *testing.T, target, deps string) string {
	t.Helper()
	root := t.TempDir()
	bin := filepath.Join(root, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bash", "grep", "sed", "mkdir", "sleep", "cat", "make"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "make"), "-n", "-C", "../..", target, "DEPS="+deps, "GO=:")
	cmd.Env = []string{"PATH=" + bin, "ROOT=" + root}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestMakeTestLeavesTheMachineAsItIs(t *testing.T) {
	out := makeOn(t, "test", "no")
	if strings.Contains(out, "install.sh\n") || !strings.Contains(out, "Missing: postgresql pgbouncer mariadb-server") || !strings.Contains(out, "Left out are the tests with the build tag servers") {
		t.Errorf("with DEPS=no it runs\n%s", out)
	}
	for _, target := range []string{"test-working", "test-waiting", "test-modules"} {
		if out := makeOn(t, target, "no"); strings.Contains(out, "-tags servers") || strings.Contains(out, "install.sh") {
			t.Errorf("%s with DEPS=no runs\n%s", target, out)
		}
		if out := makeOn(t, target, "yes"); !strings.Contains(out, "-tags servers") {
			t.Errorf("%s runs\n%s", target, out)
		}
	}
}
