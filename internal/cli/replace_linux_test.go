package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/internal/cli"
)

// A user outside a file's group cannot replace the file with it: the import is refused before a server
// is called.
func TestAnImportChecksThatItMayReplaceTheFile(t *testing.T) {
	dir := t.TempDir()
	isRoot := os.Geteuid() == 0
	if isRoot {
		dir = dirOf(t, nobody)
	}
	file := filepath.Join(dir, "jobs.cron")
	if err := os.WriteFile(file, []byte("0 5 * * * /bin/true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	why := "chown "
	if isRoot {
		if err := os.Chown(file, nobody, 4242); err != nil {
			t.Fatal(err)
		}
	} else if why = "permission denied"; os.Chmod(dir, 0o500) != nil {
		t.Fatal("the directory cannot be closed")
	}
	var output bytes.Buffer
	done := make(chan cli.ExitCode)
	go func() {
		if isRoot {
			runtime.LockOSThread() // this thread ends as its user
			if _, _, no := syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0); no != 0 {
				output.WriteString(no.Error())
			}
		}
		done <- cli.Run(t.Context(), cli.Env{Stdout: &output, Stderr: &output, Dir: dir, Now: time.Now, Getenv: func(string) string { return "" }},
			[]string{"crontab", "import", file, "--apply", "--comment-out", "--server", "http://127.0.0.1:1"})
	}()
	if code := <-done; code != cli.ExitFailed || !strings.Contains(output.String(), "its lines cannot be commented out, and nothing was changed: ") || !strings.Contains(output.String(), why) {
		t.Errorf("the import ended with %d and said %s", code, output.String())
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("it left %v (%v)", list, err)
	}
	_ = os.Chmod(dir, 0o700) // for its removal
}
