// Package node is what the programs around the libraries under test have in common: the jobs come from a file, each
// of them runs a command, and SIGTERM ends the program gently.
package node

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// A Job is a job of the workload.
type Job struct {
	Name      string        `json:"name"`
	Every     time.Duration `json:"every"`
	Command   []string      `json:"command"`
	NoOverlap bool          `json:"no_overlap"`
}

// Cron is the schedule with a field for seconds.
func (j Job) Cron() string {
	n := int(j.Every / time.Second)
	if n%60 == 0 {
		return "0 * * * * *"
	}
	return fmt.Sprintf("*/%d * * * * *", n)
}

// Run runs the command of the job to its end. It outlives this program, as a job of a crontab does.
func (j Job) Run() error {
	cmd := exec.Command(j.Command[0], j.Command[1:]...)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// Options are the flags of the programs.
type Options struct {
	Store string
	Name  string
	Jobs  []Job
}

// Start reads the flags and the jobs. The context ends with SIGTERM.
func Start() (context.Context, Options) {
	var o Options
	file := flag.String("jobs", "", "file with the jobs")
	flag.StringVar(&o.Store, "store", "", "address of the store")
	flag.StringVar(&o.Name, "name", "", "name of this node")
	flag.Parse()
	text, err := os.ReadFile(*file)
	Must(err)
	Must(json.Unmarshal(text, &o.Jobs))
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	return ctx, o
}

// Must ends the program with an error.
func Must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
