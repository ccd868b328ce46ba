package sqlite

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// Steps cache only jobs that run. The definitions here are 16 MB as written.
func TestNewJobsTakeNoMemory(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "belfry.db"), Options{})
	note := strings.Repeat("x", 4<<10)
	before := heapInUse()
	for batch := range 4000 / store.PutMax {
		list := make([]store.PutJob, store.PutMax)
		for i := range list {
			name := fmt.Sprintf("job-%d-%d", batch, i)
			documents, err := job.Decode("job.yaml", []byte("name: "+name+"\ndescription: "+note+"\nschedule: {every: 1h}\nrun: {shell: 'true'}"))
			if err != nil {
				t.Fatal(err)
			}
			list[i] = store.PutJob{Definition: documents[0].Job, Actor: "ann"}
		}
		if _, err := s.PutJobs(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heapInUse() - before; grown > 8<<20 {
		t.Errorf("4,000 new jobs take %d MB", grown>>20)
	}
	runtime.KeepAlive(s)
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
