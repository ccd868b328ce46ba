// Command witness is what the jobs of the end-to-end tests run. It writes down in
// a file when it starts and ends, and behaves as its arguments say:
//
//	witness FILE [WORD...]
//
//	for=DURATION    lasts so long
//	until=PATH      lasts until there is such a file
//	exit=N          ends with this exit code
//	failures=N      ends with exit code 1 in the first N attempts
//	ignore          ignores SIGTERM
//	child=WORD+...  starts a witness with these words and does not wait for its end
//	apart           leaves its process group
//	tell            closes what its parent waits for, once it has started
//	flood=N         prints N MiB
//	say=TEXT        prints a line at its start
//	slots=N         is one of at most N at a time that have the same lock
//	lock=PATH       the lock, with a number behind it; default: FILE.JOB
//	fast            does not wait until what it writes is on the disk
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/test/e2e/evidence"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "witness:", err)
		code = 99 // no job asks for this one
	}
	os.Exit(code)
}

// words are the arguments behind the file.
type words map[string]string

func (w words) has(name string) bool { _, ok := w[name]; return ok }

func (w words) number(name string) int {
	n, _ := strconv.Atoi(w[name])
	return n
}

type witness struct {
	path  string
	file  *os.File
	words words
	about evidence.Event
}

func run(args []string) (int, error) {
	w := &witness{path: args[0], words: words{}}
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		w.words[name] = value
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	if err := w.open(); err != nil {
		return 0, err
	}
	if w.words.has("apart") {
		if _, err := syscall.Setsid(); err != nil {
			return 0, err
		}
	}
	taken, err := w.takeSlot()
	if err != nil {
		return 0, err
	}
	if err := w.write(evidence.Start, ""); err != nil {
		return 0, err
	}
	if taken {
		if err := w.write(evidence.Contended, ""); err != nil {
			return 0, err
		}
	}
	if w.words.has("tell") {
		if err := os.NewFile(toldBy, "started").Close(); err != nil {
			return 0, err
		}
	}
	if text, ok := w.words["say"]; ok {
		fmt.Println(text)
	}
	if words, ok := w.words["child"]; ok {
		if err := w.start(strings.Split(words, "+")); err != nil {
			return 0, err
		}
	}
	if err := flood(w.words.number("flood")); err != nil {
		return 0, err
	}
	code := w.words.number("exit")
	if w.about.Attempt <= w.words.number("failures") {
		code = 1
	}
	ended, err := w.last(terminated)
	if err != nil {
		return 0, err
	}
	if ended {
		return 128 + int(syscall.SIGTERM), w.write(evidence.End, "term")
	}
	return code, w.write(evidence.End, strconv.Itoa(code))
}

func (w *witness) open() error {
	attempt, _ := strconv.Atoi(os.Getenv("BELFRY_ATTEMPT"))
	scheduled, _ := time.Parse(time.RFC3339Nano, os.Getenv("BELFRY_SCHEDULED"))
	w.about = evidence.Event{
		Job: os.Getenv("BELFRY_JOB"), Run: os.Getenv("BELFRY_RUN"), Attempt: attempt, Scheduled: scheduled, PID: os.Getpid(),
	}
	var err error
	w.file, err = os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	return err
}

// write appends one line in one call, so that the lines of many do not mix.
func (w *witness) write(kind evidence.Kind, detail string) error {
	e := w.about
	e.Kind, e.At, e.Detail = kind, time.Now(), detail
	if _, err := w.file.WriteString(e.Line()); err != nil {
		return err
	}
	if w.words.has("fast") {
		return nil
	}
	return w.file.Sync()
}

// takeSlot takes one of the locks, and reports whether others have all of them. The
// kernel gives a lock back when the process is gone.
func (w *witness) takeSlot() (taken bool, err error) {
	slots := w.words.number("slots")
	if slots == 0 {
		return false, nil
	}
	lock, ok := w.words["lock"]
	if !ok {
		lock = w.path + "." + strings.ReplaceAll(w.about.Job, "/", "_")
	}
	for n := range slots {
		f, err := os.OpenFile(lock+"."+strconv.Itoa(n), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return false, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return false, nil // it stays open to the end
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return false, err
		}
	}
	return true, nil
}

// toldBy is the end of a pipe that a child has: the first of exec.Cmd.ExtraFiles.
const toldBy = 3

// start starts a witness that has the same output, and waits until it has written so.
func (w *witness) start(words []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	started, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer started.Close()
	child := exec.Command(self, append([]string{w.path, "tell"}, words...)...)
	child.Stdout, child.Stderr, child.ExtraFiles = os.Stdout, os.Stderr, []*os.File{tell}
	child.Env = append(os.Environ(), "BELFRY_JOB="+w.about.Job+".child")
	err = child.Start()
	tell.Close()
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, started)
	return err
}

func flood(mebibytes int) error {
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = 'a' + byte(i%26)
		if i%64 == 63 {
			block[i] = '\n'
		}
	}
	for range mebibytes {
		if _, err := os.Stdout.Write(block); err != nil {
			return err
		}
	}
	return nil
}

// last lasts as long as it shall and reports whether SIGTERM has ended it.
func (w *witness) last(terminated <-chan os.Signal) (bool, error) {
	var over <-chan time.Time
	if text, ok := w.words["for"]; ok {
		d, err := time.ParseDuration(text)
		if err != nil {
			return false, err
		}
		over = time.After(d)
	}
	until, ok := w.words["until"]
	if !ok && over == nil {
		return false, nil
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-terminated:
			if err := w.write(evidence.Term, ""); err != nil {
				return false, err
			}
			if !w.words.has("ignore") {
				return true, nil
			}
		case <-over:
			return false, nil
		case <-look.C:
			if _, err := os.Stat(until); until != "" && err == nil {
				return false, nil
			}
		}
	}
}
