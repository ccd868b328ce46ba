// Package parallel processes many items on several goroutines.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls do for every i from 0 to below n, for least of them in a row at a time, which should
// be as many as are worth a goroutine. It returns when all are done. do is called on several
// goroutines, or on the caller's for few items.
func Each(n, least int, do func(i int)) {
	run(n, least, min(runtime.GOMAXPROCS(0), (n+least-1)/least), do)
}

// AtOnce calls do for every i from 0 to below n on up to n goroutines, whatever the number of
// processors: do mostly waits. It returns when all are done.
func AtOnce(n, most int, do func(i int)) {
	run(n, 1, min(n, most), do)
}

func run(n, least, workers int, do func(i int)) {
	if workers < 2 {
		for i := range n {
			do(i)
		}
		return
	}
	var group sync.WaitGroup
	var next atomic.Int64
	for range workers {
		group.Go(func() {
			for {
				end := int(next.Add(int64(least)))
				if end-least >= n {
					return
				}
				for i := end - least; i < min(end, n); i++ {
					do(i)
				}
			}
		})
	}
	group.Wait()
}
