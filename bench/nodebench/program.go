package nodebench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// program is the command of the jobs: it appends a line with its arguments and start time to a
// file. It is in C, since a Go program needs another millisecond to start, which would count as
// lateness.
type program struct {
	path string
	kind string // how it was built, in words
}

const (
	// programC does without a C library. GNU's runs some twenty CPUID instructions before main,
	// which a hypervisor answers in 15 µs each: on a virtual machine that would dominate the
	// figure.
	programC = `
#if __x86_64__
enum { WRITE = 1, EXIT = 60, CLOCK_GETTIME = 228, OPENAT = 257 };
static long ask(long n, long a, long b, long c, long d) {
	register long r10 __asm__("r10") = d;
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return result;
}
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
#elif __aarch64__
enum { OPENAT = 56, WRITE = 64, EXIT = 93, CLOCK_GETTIME = 113 };
static long ask(long n, long a, long b, long c, long d) {
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
__asm__(".globl _start\n_start:\n mov x29, xzr\n mov x0, sp\n bl begin\n");
#endif

enum { HERE = -100, APPEND = 02001, CREATE = 0100, ROOM = 256 };

static char line[ROOM];
static int n;

static void add(const char *text) {
	while (*text && n < ROOM) line[n++] = *text++;
}

static void add_number(long value, int digits) {
	char text[24];
	int i = sizeof text - 1;
	text[i] = 0;
	for (; value > 0 || digits > 0; value /= 10, digits--) text[--i] = '0' + value % 10;
	add(text + i);
}

static const char *environment(char **list, const char *name) {
	for (; *list; list++) {
		const char *a = *list, *b = name;
		while (*b && *a == *b) a++, b++;
		if (!*b) return a;
	}
	return "-";
}

__attribute__((used)) void begin(long *stack) {
	long now[2];
	ask(CLOCK_GETTIME, 0, (long)now, 0, 0);
	long argc = stack[0];
	char **argv = (char **)(stack + 1);
	if (argc != 3) ask(EXIT, 2, 0, 0, 0);
	add(argv[2]);
	add(" ");
	add(environment(argv + argc + 1, "BELFRY_SCHEDULED="));
	add(" ");
	add_number(now[0], 1);
	add(".");
	add_number(now[1], 9);
	add("\n");
	long fd = ask(OPENAT, HERE, (long)argv[1], APPEND | CREATE, 0666);
	ask(EXIT, fd < 0 || n >= ROOM || ask(WRITE, fd, (long)line, n, 0) != n, 0, 0, 0);
	__builtin_unreachable();
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

// tiny returns the program, building it once.
func (b *bench) tiny(ctx context.Context) (*program, error) {
	if b.program != nil {
		return b.program, nil
	}
	p := &program{path: filepath.Join(b.dir, "tiny")}
	var build *exec.Cmd
	known := runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"
	if cc, err := exec.LookPath("cc"); err == nil && known {
		source := p.path + ".c"
		if err := os.WriteFile(source, []byte(programC), 0o600); err != nil {
			return nil, err
		}
		build = exec.CommandContext(ctx, cc, "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-O1", "-o", p.path, source)
		p.kind = "a static program in C, without a library"
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
	scheduled time.Time // to the second; zero if unknown
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
