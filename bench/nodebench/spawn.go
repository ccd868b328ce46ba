package nodebench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// spawnsPerProcessor is the number of concurrent spawns, as in package executor/shell.
const spawnsPerProcessor = 4

// bare is the cost of starting processes without a scheduler.
type bare struct {
	late      lateness
	rate      float64       // a second
	processor time.Duration // of each
}

func (r bare) String() string { return number(r.rate, 0) + " bare spawns a second" }

// bareSpawns starts the program equally often, at the same moments of a second, from the best
// number of goroutines, in the cheapest way: vfork and exec, without pipes and readers. It repeats
// that and counts all.
func (b *bench) bareSpawns(p *program, l commandLoad, jobs int) (bare, error) {
	dir, err := b.folder()
	if err != nil {
		return bare{}, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "starts")
	rounds := b.scaled(max(3, min(10, 3000/jobs)), 2)
	var all bare
	var took time.Duration
	worked, err := ownTime()
	if err != nil {
		return bare{}, err
	}
	for range rounds {
		_ = os.Remove(file)
		began := time.Now().Add(20 * time.Millisecond)
		if err := spawnAll(p, l, jobs, began, file); err != nil {
			return bare{}, err
		}
		took += time.Since(began)
		starts, err := readStarts(file)
		if err != nil {
			return bare{}, err
		}
		if len(starts) != jobs {
			return bare{}, fmt.Errorf("%d of %d bare processes wrote when they started", len(starts), jobs)
		}
		for _, s := range starts {
			all.late = append(all.late, s.at.Sub(began.Add(l.offset(s.job, jobs))))
		}
	}
	after, err := ownTime()
	if err != nil {
		return bare{}, err
	}
	all.late.sort()
	all.rate = float64(rounds*jobs) / took.Seconds()
	all.processor = (after - worked) / time.Duration(rounds*jobs)
	return all, nil
}

// ownTime returns how long this process and its children have worked.
func ownTime() (time.Duration, error) {
	own, children, err := processorTime(os.Getpid())
	return own + children, err
}

// spawnAll starts the program once for each job, and waits for all.
func spawnAll(p *program, l commandLoad, jobs int, began time.Time, file string) error {
	workers := spawnsPerProcessor * runtime.GOMAXPROCS(0)
	next := make(chan int) // closed once all jobs were passed out
	failures := make(chan error, workers)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range next {
				time.Sleep(time.Until(began.Add(l.offset(i, jobs))))
				if err := spawnOne(l.words(p, file, i)); err != nil {
					select {
					case failures <- err:
					default: // the first ones are enough
					}
				}
			}
		})
	}
	for i := range jobs {
		next <- i
	}
	close(next)
	group.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

func spawnOne(argv []string) error {
	pid, _, err := syscall.StartProcess(argv[0], argv, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	if status.ExitStatus() != 0 {
		return fmt.Errorf("%s has ended with exit status %d", argv[0], status.ExitStatus())
	}
	return nil
}

// words are the arguments of the program for a job, directly or by sh.
func (l commandLoad) words(p *program, file string, i int) []string {
	if l.shell {
		return []string{"/bin/sh", "-c", l.line(p, file, i)}
	}
	return []string{p.path, file, strconv.Itoa(i)}
}

// line returns a command line for a shell, with quotes so that the node does not execute it
// directly. Shells replace themselves by its last program.
func (l commandLoad) line(p *program, file string, i int) string {
	return fmt.Sprintf("%s '%s' '%d'", p.path, file, i)
}
