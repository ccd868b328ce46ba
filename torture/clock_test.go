package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A program that prints the time of its clock for each line that it reads, how it is started, and whether it is static.
var clocks = map[string]func(t *testing.T) *exec.Cmd{
	"a static program in Go": func(t *testing.T) *exec.Cmd {
		dir := t.TempDir()
		source := filepath.Join(dir, "clock.go")
		text := `package main
import ("bufio"; "fmt"; "os"; "time")
func main() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); { fmt.Println(time.Now().Unix()) }
}
`
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "clock"), source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return exec.Command(filepath.Join(dir, "clock"))
	},
	// It asks glibc, by time().
	"bash": func(t *testing.T) *exec.Cmd {
		path, err := exec.LookPath("bash")
		if err != nil {
			t.Skip(err)
		}
		return exec.Command(path, "-c", `while read line; do printf '%(%s)T\n' -1; done`)
	},
	// It asks glibc, by clock_gettime().
	"python": func(t *testing.T) *exec.Cmd {
		path, err := exec.LookPath("python3")
		if err != nil {
			t.Skip(err)
		}
		return exec.Command(path, "-u", "-c", "import sys, time\nfor line in sys.stdin: print(int(time.time()))")
	},
}

func TestAProcessHasAClockOfItsOwn(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the machine code is that of linux/amd64")
	}
	for name, start := range clocks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := start(t)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
			lines := bufio.NewReader(out)
			ask := func() string {
				if _, err := in.Write([]byte("\n")); err != nil {
					t.Fatal(err)
				}
				text, err := lines.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				return text
			}
			ask() // it is past what it executes at its start
			var c clock
			for _, by := range []time.Duration{0, time.Hour, -time.Hour, 7 * time.Second, 0} {
				if err := c.step(cmd.Process.Pid, by); err != nil {
					t.Fatal(err)
				}
				before := time.Now()
				text := ask()
				unix, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
				told := time.Unix(unix, 0).Add(-by)
				if err != nil || told.Before(before.Truncate(time.Second).Add(-time.Second)) || told.After(time.Now()) {
					t.Errorf("a step of %s: its clock says %s, that of the machine %s, error %v", by, time.Unix(unix, 0), before, err)
				}
			}
		})
	}
}
