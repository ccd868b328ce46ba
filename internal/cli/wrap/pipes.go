package wrap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// pipes pass the output of a command on and keep some of it.
type pipes struct {
	stdout, stderr io.Writer  // what the command gets
	own            []*os.File // this process's ends of what the command writes to
	copies         sync.WaitGroup
	copied         chan struct{} // closed when all has been passed on
	kept           boundedOutput
}

// connect makes the pipes between a command and two streams. Streams that are one, as cron
// has them, get one pipe: what was written first comes first. A terminal gets none, so that the
// command sees it.
func connect(stdout, stderr io.Writer, silent bool) (*pipes, error) {
	p := &pipes{stdout: stdout, stderr: stderr, copied: make(chan struct{})}
	var err error
	if !silent {
		if isSame(stdout, stderr) {
			p.stdout, err = p.add(stdout)
			p.stderr = p.stdout
		} else {
			p.stdout, err = p.add(stdout)
			if err == nil {
				p.stderr, err = p.add(stderr)
			}
		}
	}
	if err != nil { // out of file descriptors: the command may have what there is
		p.closeOwn()
		p.stdout, p.stderr = stdout, stderr
	}
	go func() {
		p.copies.Wait()
		close(p.copied)
	}()
	return p, err
}

// isSame reports whether two streams are one file, pipe or device.
func isSame(a, b io.Writer) bool {
	x, ok := a.(*os.File)
	y, too := b.(*os.File)
	if !ok || !too {
		return false
	}
	xs, err := x.Stat()
	ys, failed := y.Stat()
	return err == nil && failed == nil && os.SameFile(xs, ys)
}

// add makes the pipe of a stream.
func (p *pipes) add(to io.Writer) (io.Writer, error) {
	if f, ok := to.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return to, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.own = append(p.own, w)
	p.copies.Go(func() { p.pass(r, to) })
	return w, nil
}

// pass copies until the end of a pipe. If the stream's reader has gone, the command sees
// that as without a pipe; other errors of the stream do not concern the command.
func (p *pipes) pass(from *os.File, to io.Writer) {
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.kept.add(buffer[:n])
		if _, failed := to.Write(buffer[:n]); errors.Is(failed, unix.EPIPE) {
			return
		}
		if err != nil {
			return
		}
	}
}

// closeOwn leaves the pipes to the command: they end with the last process that has them.
func (p *pipes) closeOwn() {
	for _, f := range p.own {
		f.Close()
	}
	p.own = nil
}

// drain waits until the output of the command was passed on, at most for a time. It waits in short
// parts, so that a machine that stalls uses up one part and loses no output.
func (p *pipes) drain(within time.Duration) {
	const parts = 20
	for range parts {
		select {
		case <-p.copied:
			return
		case <-time.After(within / parts):
		}
	}
}

// wait passes on what processes in the background still write, as cron does.
func (p *pipes) wait(hurried <-chan struct{}) {
	select {
	case <-p.copied:
	case <-hurried:
	}
}

// text returns what was kept.
func (p *pipes) text() string { return p.kept.text() }

// Of the output a report has the beginning and the end: together no more than the API takes.
const (
	headMax = 64 << 10
	tailMax = 191 << 10
)

// boundedOutput is the beginning and the end of what was written.
type boundedOutput struct {
	mu   sync.Mutex
	head []byte
	tail []byte // up to twice as long as what is kept of it
	cut  int64
}

func (k *boundedOutput) add(data []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := min(len(data), headMax-len(k.head))
	k.head = append(k.head, data[:n]...)
	k.tail = append(k.tail, data[n:]...)
	if extra := len(k.tail) - 2*tailMax; extra > 0 {
		k.trim()
	}
}

func (k *boundedOutput) trim() {
	if extra := len(k.tail) - tailMax; extra > 0 {
		k.cut += int64(extra)
		k.tail = append(k.tail[:0], k.tail[extra:]...)
	}
}

func (k *boundedOutput) text() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trim()
	between := ""
	if k.cut > 0 {
		between = fmt.Sprintf("\n... %d bytes left out ...\n", k.cut)
	}
	return strings.ToValidUTF8(string(k.head)+between+string(k.tail), "\uFFFD")
}
