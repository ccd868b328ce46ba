package nodebench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/client"
)

// patience bounds an answer of a server.
const patience = 2 * time.Minute

// server is a process of belfry serve.
type server struct {
	*client.Client
	cmd     *exec.Cmd
	url     string
	token   string        // the given token, or the created one
	started time.Duration // time until it was ready
	said    *said
	exited  chan struct{} // closed once the process has ended
}

// said is the recent log of a server.
type said struct {
	mu        sync.Mutex
	lines     []string // the last
	url, file string
	listening chan struct{} // closed once it has logged its address
	pauses    []time.Duration
	live      []float64 // MB in use after each garbage collection
}

// linesMax bounds the lines shown after a failure.
const linesMax = 50

func (s *said) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := strings.Index(line, `{"`); i > 0 {
		line = line[i:] // a message has interrupted the trace of a collection
	}
	if pause, live, ok := collection(line); ok {
		s.pauses, s.live = append(s.pauses, pause), append(s.live, live)
		return
	}
	if s.lines = append(s.lines, line); len(s.lines) > linesMax {
		s.lines = s.lines[1:]
	}
	var about struct{ Msg, URL, Token string }
	if s.url == "" && json.Unmarshal([]byte(line), &about) == nil && about.Msg == "listening" {
		s.url, s.file = about.URL, about.Token
		close(s.listening)
	}
}

// text returns the last lines.
func (s *said) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "")
}

// collections returns the longest pause of garbage collections, and the memory in use after the
// first and the last one.
func (s *said) collections(after int) (longest time.Duration, first, last float64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	after = min(after, len(s.live))
	for _, p := range s.pauses[after:] {
		longest = max(longest, p)
	}
	if n = len(s.live) - after; n > 0 {
		first, last = s.live[after], s.live[len(s.live)-1]
	}
	return longest, first, last, n
}

// collection parses the runtime's trace of a garbage collection:
//
//	gc 7 @2.1s 3%: 0.02+1.5+0.03 ms clock, 0.1+0.4/1.2/0+0.1 ms cpu, 11->12->6 MB, ...
//
// The first and the last of the times on the clock are those that stop everything.
func collection(line string) (pause time.Duration, live float64, ok bool) {
	if !strings.HasPrefix(line, "gc ") {
		return 0, 0, false
	}
	_, rest, ok := strings.Cut(line, "%: ")
	if !ok {
		return 0, 0, false
	}
	clock, rest, ok := strings.Cut(rest, " ms clock")
	if !ok {
		return 0, 0, false
	}
	parts := strings.Split(clock, "+")
	for _, part := range []string{parts[0], parts[len(parts)-1]} {
		ms, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return 0, 0, false
		}
		pause = max(pause, time.Duration(ms*float64(time.Millisecond)))
	}
	sizes, _, _ := strings.Cut(rest, " MB")
	_, after, ok := strings.Cut(sizes, "->")
	if !ok {
		return 0, 0, false
	}
	_, after, _ = strings.Cut(after, "->")
	live, err := strconv.ParseFloat(after, 64)
	return pause, live, err == nil
}

// serve starts a server and waits until it is ready.
func (b *bench) serve(ctx context.Context, data string, args ...string) (*server, error) {
	return b.join(ctx, data, "", args...)
}

// join is serve for a server whose store has a token from another.
func (b *bench) join(ctx context.Context, data, token string, args ...string) (*server, error) {
	program, err := b.built(ctx)
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	args = append([]string{
		"serve", "--data", data, "--listen", "127.0.0.1:0", "--name", "bench", "--run-as", me.Username, "--log-format", "json", "--drain-timeout", "60s",
	}, args...)
	s := &server{token: token, cmd: exec.Command(program, args...), said: &said{listening: make(chan struct{})}, exited: make(chan struct{})}
	// The runtime logs its garbage collections.
	s.cmd.Env = append(os.Environ(), "GODEBUG=gctrace=1")
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stderr = write
	began := time.Now()
	err = s.cmd.Start()
	write.Close()
	if err != nil {
		read.Close()
		return nil, fmt.Errorf("start belfry: %w", err)
	}
	go func() {
		defer read.Close()
		for lines := bufio.NewReader(read); ; {
			line, err := lines.ReadString('\n')
			s.said.add(line)
			if err != nil {
				return
			}
		}
	}()
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	if err := s.awaitReady(ctx); err != nil {
		s.kill()
		return nil, fmt.Errorf("%w; it said:\n%s", err, s.said.text())
	}
	s.started = time.Since(began)
	return s, nil
}

// awaitReady waits until the server has read its jobs.
func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-s.said.listening:
	case <-s.exited:
		return errors.New("belfry has ended")
	case <-ctx.Done():
		return fmt.Errorf("belfry does not listen: %w", ctx.Err())
	}
	s.url = s.said.url
	if s.token == "" {
		token, err := os.ReadFile(s.said.file)
		if err != nil {
			return err
		}
		s.token = string(bytes.TrimSpace(token))
	}
	var err error
	if s.Client, err = client.New(client.Config{URL: s.url, Token: s.token}); err != nil {
		return err
	}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/readyz", nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		const look = 5 * time.Millisecond
		if err := sleep(ctx, look); err != nil {
			return fmt.Errorf("belfry is not ready: %w", err)
		}
	}
}

// stop ends the server gently.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.kill()
		return errors.New("belfry does not stop")
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("belfry has ended with exit code %d; it said:\n%s", code, s.said.text())
	}
	return nil
}

// kill kills a server that is no longer needed. It may have ended.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// watchdog returns the process id of the server's watchdog, which is the child
// with that name, or 0.
func (s *server) watchdog() int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.cmd.Process.Pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			line, _ := os.ReadFile("/proc/" + word + "/cmdline")
			if strings.HasPrefix(string(line), "belfry-watchdog") {
				pid, _ := strconv.Atoi(word)
				return pid
			}
		}
	}
	return 0
}

// memory returns the resident memory of a process, now and at its highest, in MB.
func memory(pid int) (now, peak float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 3 {
			continue
		}
		kib, _ := strconv.ParseFloat(words[1], 64)
		switch words[0] {
		case "VmRSS:":
			now = kib / 1024
		case "VmHWM:":
			peak = kib / 1024
		}
	}
	return now, peak, nil
}

// processorTime returns the user and system time of a process, and of its ended children.
func processorTime(pid int) (own, children time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// After the name in parentheses the fields are counted from 3. The times are
	// in hundredths of a second on every Linux.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const first, count, tick = 14 - 3, 4, time.Second / 100
	if len(fields) < first+count {
		return 0, 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var times [count]time.Duration
	for i := range times {
		n, err := strconv.ParseInt(fields[first+i], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		times[i] = time.Duration(n) * tick
	}
	return times[0] + times[1], times[2] + times[3], nil
}
