package main

import (
	"context"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/belfry-cron/belfry/bench/programbench"
)

func main() {
	jobs, _ := strconv.Atoi(os.Args[2])
	secs, _ := strconv.Atoi(os.Args[3])
	f, _ := os.Create("cpu.prof")
	go func() {
		time.Sleep(6 * time.Second)
		pprof.StartCPUProfile(f)
	}()
	runtime.MemProfileRate = 64 << 10
	go func() {
		time.Sleep(time.Duration(secs+5) * time.Second)
		h, _ := os.Create("heap.prof")
		pprof.WriteHeapProfile(h)
		h.Close()
	}()
	programbench.Run(context.Background(), os.Stdout, programbench.Options{Only: os.Args[1], Jobs: jobs, Seconds: secs})
	pprof.StopCPUProfile()
	f.Close()
}
