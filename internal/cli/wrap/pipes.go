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

// pipes forward the output of a command and keep a part of it.
type pipes struct {
	stdout, stderr io.Writer  // the streams of the command
	own            []*os.File // this process's write ends of the pipes
	copies         sync.WaitGroup
	copied         chan struct{} // closed once everything is forwarded
	output         boundedOutput
}

// connect makes the pipes between a command and two streams. Equal streams, as with cron, share a
// pipe, which keeps their order. A terminal gets no pipe, so that the command sees it.
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
	if err != nil { // out of file descriptors: the command runs with what there is
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

// pass copies until the end of a pipe. If the stream's reader disconnects, the command notices as
// without a pipe; other errors do not affect it.
func (p *pipes) pass(from *os.File, to io.Writer) {
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.output.add(buffer[:n])
		if _, failed := to.Write(buffer[:n]); errors.Is(failed, unix.EPIPE) {
			return
		}
		if err != nil {
			return
		}
	}
}

// closeOwn closes this process's write ends of the pipes, which then end with the last process that
// has them.
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

// wait forwards later output of background processes, like cron.
func (p *pipes) wait(hurried <-chan struct{}) {
	select {
	case <-p.copied:
	case <-hurried:
	}
}

// text returns the kept part.
func (p *pipes) text() string { return p.output.text() }

// A report has the beginning and the end of the output, within the limit of the API.
const (
	headMax = 64 << 10
	tailMax = 191 << 10
)

// boundedOutput keeps the beginning and the end of an output.
type boundedOutput struct {
	mu   sync.Mutex
	head []byte
	tail []byte // up to twice as long as its kept part
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
