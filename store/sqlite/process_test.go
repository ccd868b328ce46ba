package sqlite

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/belfry-cron/belfry/store"
)

// backupEnv makes the test binary a process that backs up a database at each request on its
// standard input, and prints how many chunks of output the copy has.
const backupEnv = "BELFRY_SQLITE_TEST_BACKUP"

func backUpWhenAsked(t *testing.T, path string) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		to := filepath.Join(t.TempDir(), "copy.db")
		if err := Backup(t.Context(), path, to); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{path, to} {
			if complete, err := Check(t.Context(), file); err != nil || !complete {
				t.Fatalf("%s is not whole: %v", file, err)
			}
		}
		c, err := openConn(to, false)
		if err != nil {
			t.Fatal(err)
		}
		n, err := number(c, "select count(*) from output")
		if err = errors.Join(err, c.close()); err != nil {
			t.Fatal(err)
		}
		fmt.Println("chunks", n)
	}
}

// Another process that reads the files during writes sees all earlier acknowledged data.
func TestAnotherProcessBacksUpWhileTheLogIsWritten(t *testing.T) {
	if path := os.Getenv(backupEnv); path != "" {
		backUpWhenAsked(t, path)
		return
	}
	const chunks = 5 // per call, more than one write takes
	s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), backupEnv+"="+s.d.path)
	cmd.Stderr = os.Stderr
	ask, err := cmd.StdinPipe()
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
	ids, acknowledged := &tally{}, int64(0)
	write := func(stop <-chan struct{}) error {
		for range 100 { // bounds the files if the other process is slow
			select {
			case <-stop:
				return nil
			default:
			}
			list := make([]store.OutputChunk, chunks)
			run := ids.next()
			for i := range list {
				list[i] = store.OutputChunk{Run: run, Attempt: 1, Seq: i, Data: make([]byte, 30_000)}
			}
			if err := s.AppendOutput(t.Context(), list); err != nil {
				return err
			}
			acknowledged += chunks
		}
		return nil
	}
	lines := bufio.NewScanner(out)
	for range 4 {
		before, n := acknowledged, int64(-1)
		stop, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- write(stop) }()
		fmt.Fprintln(ask, "again")
		if lines.Scan() {
			fmt.Sscanf(lines.Text(), "chunks %d", &n)
		}
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
			break
		}
		if n < before || n > acknowledged || n%chunks != 0 {
			t.Errorf("the copy has %q, want %d to %d", lines.Text(), before, acknowledged)
			break
		}
	}
	if err := errors.Join(ask.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}
