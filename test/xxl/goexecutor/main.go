// Goexecutor is an executor of XXL-JOB, unmodified, with some handlers: what Belfry is tested
// with. Its arguments are the address of an admin, an access token, a port and, for the handlers that
// count, a file that gets the parameter of each run that begins.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	xxl "github.com/xxl-job/xxl-job-executor-go"
)

const (
	// counters is how many handlers count.
	counters = 10
	// counts bounds their duration.
	counts = 200 * time.Millisecond
)

// logs are the outputs of runs, by their numbers.
var logs sync.Map

func write(p *xxl.RunReq, format string, args ...any) {
	before, _ := logs.Load(p.LogID)
	lines, _ := before.([]string)
	logs.Store(p.LogID, append(lines, fmt.Sprintf(format, args...)))
}

func main() {
	e := xxl.NewExecutor(xxl.ServerAddr(os.Args[1]), xxl.AccessToken(os.Args[2]), xxl.ExecutorIp("127.0.0.1"), xxl.ExecutorPort(os.Args[3]), xxl.RegistryKey("go-group"), xxl.SetLogger(quiet{}))
	e.Init()
	e.RegTask("echo", func(_ context.Context, p *xxl.RunReq) string {
		write(p, "got %s, shard %d of %d", p.ExecutorParams, p.BroadcastIndex, p.BroadcastTotal)
		return "done"
	})
	e.RegTask("sleep", func(ctx context.Context, p *xxl.RunReq) string {
		// Until a file exists, or for a duration.
		d, err := time.ParseDuration(p.ExecutorParams)
		write(p, "sleeping %s", p.ExecutorParams)
		began := time.Now()
		for look := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				return "cancelled"
			case <-look.C:
			}
			if _, missing := os.Stat(p.ExecutorParams); missing == nil || err == nil && time.Since(began) > d {
				return "slept"
			}
		}
	})
	if len(os.Args) > 4 {
		file, err := os.OpenFile(os.Args[4], os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for i := range counters {
			e.RegTask(fmt.Sprint("count-", i), func(_ context.Context, p *xxl.RunReq) string {
				if _, err := file.WriteString(p.ExecutorParams + "\n"); err != nil {
					panic(err)
				}
				time.Sleep(rand.N(counts))
				return "counted"
			})
		}
	}
	e.RegTask("panic", func(context.Context, *xxl.RunReq) string { panic("deliberate") })
	e.LogHandler(func(r *xxl.LogReq) *xxl.LogRes {
		kept, _ := logs.Load(r.LogID)
		lines, _ := kept.([]string)
		lines = lines[min(max(0, r.FromLineNum-1), len(lines)):]
		text := strings.Join(lines, "\n")
		if text != "" {
			text += "\n"
		}
		return &xxl.LogRes{Code: 200, Content: xxl.LogResContent{FromLineNum: r.FromLineNum, ToLineNum: r.FromLineNum + len(lines) - 1, LogContent: text}}
	})
	if err := e.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// quiet is a logger that writes nothing.
type quiet struct{}

func (quiet) Info(string, ...any)  {}
func (quiet) Error(string, ...any) {}
