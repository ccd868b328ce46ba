package columns_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store/internal/columns"
)

// TestADefinitionIsKeptAsItWillBeRead encodes the documents of package job, and values that no
// document has.
func TestADefinitionIsKeptAsItWillBeRead(t *testing.T) {
	local := time.FixedZone("somewhere", 3600)
	jobs := []*job.Job{
		{},
		{Namespace: "other"},
		{
			UID: job.ID{1}, Version: 2, Epoch: 3, Status: &job.Status{State: job.JobActive},
			Labels: map[string]string{}, Params: map[string]job.Param{"a": {}},
			Schedule: job.Schedule{
				Start: time.Now(), End: time.Now().In(local), Cron: []string{},
				At: []time.Time{time.Now(), time.Now().In(local), time.Now().UTC()},
			},
		},
	}
	files, err := filepath.Glob("../../../job/testdata/good/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents were found: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents, err := job.Decode(file, data)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents {
			if d.Job != nil {
				jobs = append(jobs, d.Job, d.Job.WithDefaults(job.Defaults{}))
			}
		}
	}
	for _, j := range jobs {
		text, definition, err := columns.EncodeJob(j)
		if err != nil {
			t.Fatal(err)
		}
		read, err := columns.DecodeJob(text)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(definition, read) {
			t.Errorf("%s is kept as\n%+v\nand read as\n%+v", j.Name, definition, read)
		}
	}
}
