package nodebench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// program is what the jobs run: it appends a line to a file, with the words that
// it is given and when it began, and ends. In C it begins its work when the
// kernel has started it; a program in Go needs another millisecond for that, which
// would count as lateness.
type program struct {
	path string
	kind string // how it was made, in words
}

const (
	programC = `
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	const char *scheduled = getenv("BELFRY_SCHEDULED");
	char line[256];
	int fd, n;
	if (argc != 3) return 2;
	fd = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0666);
	n = snprintf(line, sizeof line, "%s %s %lld.%09ld\n", argv[2], scheduled ? scheduled : "-", (long long)now.tv_sec, now.tv_nsec);
	return fd < 0 || n < 0 || n >= (int)sizeof line || write(fd, line, n) != n;
}
`
	programGo = `
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	now := time.Now()
	scheduled := os.Getenv("BELFRY_SCHEDULED")
	if scheduled == "" {
		scheduled = "-"
	}
	f, err := os.OpenFile(os.Args[1], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		os.Exit(1)
	}
	if _, err := fmt.Fprintf(f, "%s %s %d.%09d\n", os.Args[2], scheduled, now.Unix(), now.Nanosecond()); err != nil {
		os.Exit(1)
	}
}
`
)

// tiny returns the program, which is built once.
func (b *bench) tiny(ctx context.Context) (*program, error) {
	if b.program != nil {
		return b.program, nil
	}
	p := &program{path: filepath.Join(b.dir, "tiny")}
	var build *exec.Cmd
	if cc, err := exec.LookPath("cc"); err == nil {
		source := p.path + ".c"
		if err := os.WriteFile(source, []byte(programC), 0o600); err != nil {
			return nil, err
		}
		build, p.kind = exec.CommandContext(ctx, cc, "-static", "-O2", "-o", p.path, source), "a static program in C"
	} else {
		source := p.path + ".go"
		if err := os.WriteFile(source, []byte(programGo), 0o600); err != nil {
			return nil, err
		}
		build, p.kind = exec.CommandContext(ctx, "go", "build", "-o", p.path, source), "a program in Go, which begins about 1 ms later than one in C"
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the program of the jobs: %w\n%s", err, out)
	}
	b.program = p
	return p, nil
}

// built returns the program of the server, as it is released.
func (b *bench) built(ctx context.Context) (string, error) {
	if b.server != "" {
		return b.server, nil
	}
	path := filepath.Join(b.dir, "belfry")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "./cmd/belfry")
	var err error
	if cmd.Dir, err = repository(ctx); err != nil {
		return "", err
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build belfry: %w\n%s", err, out)
	}
	b.server = path
	return path, nil
}

// repository returns the folder of Belfry's own module.
func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/belfry-cron/belfry").Output()
	if err != nil {
		return "", fmt.Errorf("find the module of Belfry: %w", err)
	}
	return string(bytes.TrimSpace(out)), nil
}

// start is a line that the program has written.
type start struct {
	job       int
	scheduled time.Time // to the second; zero where it was not told
	at        time.Time
}

// readStarts reads what the jobs have written.
func readStarts(path string) ([]start, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var starts []start
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 3 {
			return nil, fmt.Errorf("%s: %q was not written by the program of the jobs", path, line)
		}
		var s start
		if s.job, err = strconv.Atoi(words[0]); err != nil {
			return nil, err
		}
		if words[1] != "-" {
			if s.scheduled, err = time.Parse(time.RFC3339, words[1]); err != nil {
				return nil, err
			}
		}
		seconds, nanoseconds, _ := strings.Cut(words[2], ".")
		sec, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return nil, err
		}
		nsec, err := strconv.ParseInt(nanoseconds, 10, 64)
		if err != nil {
			return nil, err
		}
		s.at = time.Unix(sec, nsec)
		starts = append(starts, s)
	}
	return starts, nil
}
