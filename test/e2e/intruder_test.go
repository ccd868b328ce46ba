//go:build servers && linux

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A job of another user tries all that leads into an upgrade: files that the next version inherits, the
// journal of the watchdog, the signal, and the memory of both processes.
func TestJobsOfAnotherUserReachNothingOfAnUpgrade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run a job as another user")
	}
	t.Parallel()
	f := newFolder(t)
	file := f.path("belfry.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("shell: {allow_users: [daemon]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := f.upgradable(t, "--config", file)
	try := func(when string) {
		t.Helper()
		list := []string{strconv.Itoa(s.cmd.Process.Pid)}
		children, _ := filepath.Glob("/proc/" + list[0] + "/task/*/children")
		for _, name := range children {
			text, _ := os.ReadFile(name)
			list = append(list, strings.Fields(string(text))...)
		}
		if len(list) < 2 {
			t.Fatalf("%s the server has no watchdog", when)
		}
		s.apply(fmt.Sprintf("{name: intruder, run: {user: daemon, dir: /, shell: %q}}", fmt.Sprintf(`
id -un
echo "files: $(ls /proc/self/fd | tr '\n' ' ')"
env | grep BELFRY_UPGRADE && echo REACHED the message to the next version
for p in %s; do
  for n in environ maps mem; do head -c 1 /proc/$p/$n 2>/dev/null | grep -q . && echo REACHED $n of $p; done
  ls /proc/$p/fd/* >/dev/null 2>&1 && echo REACHED files of $p
  for n in $(seq 0 64); do { true >/proc/$p/fd/$n; } 2>/dev/null && echo REACHED file $n of $p; done
  for n in USR2 HUP TERM KILL; do kill -$n $p 2>/dev/null && echo REACHED $p with $n; done
done
find %s 2>/dev/null | grep -v '^%s$' && echo REACHED the data
{ echo '{}' >%s/journal; } 2>/dev/null && echo REACHED the journal
exit 0`, strings.Join(list, " "), f.data, f.data, f.data)))
		run := s.ended(s.runByHand("intruder").ID)
		if out := s.output(run.ID); !strings.Contains(out, "daemon\nfiles: 0 1 2 3 \n") || strings.Contains(out, "REACHED") {
			t.Errorf("%s the job ended as %s (%s), and says\n%s", when, run.Outcome, run.Reason, out)
		}
	}
	try("before")
	for i := range 2 {
		s.upgrade()
		try(fmt.Sprint("after upgrade ", i+1))
	}
	s.stop()
}
