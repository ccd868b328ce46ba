// Command crontorture breaks schedulers on purpose and says what became of their jobs. README.md explains it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/belfry-cron/belfry/torture/check"
)

type options struct {
	out     string
	seed    uint64
	length  time.Duration
	calm    time.Duration
	disk    string
	settle  time.Duration
	belfry  string
	generic string
	stores  map[string]string
	limits  check.Limits
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crontorture:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o := &options{stores: map[string]string{}, limits: check.Limits{Tolerance: 5 * time.Millisecond, Limit: 10 * time.Second}}
	flags, names, list, judged := o.flags()
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	all := systems(o)
	switch {
	case *list:
		for _, s := range all {
			fmt.Printf("%-18s %d node(s)  %s\n", s.Name, s.Nodes, s.Settings)
		}
		return nil
	case *judged != "":
		return rejudge(*judged)
	case *names == "":
		return errors.New("the flag -systems is missing: -list shows them")
	}
	var err error
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	return tortureAll(ctx, o, all, strings.Split(*names, ","))
}

// flags are those of the command line; what they say is in the options and the three values.
func (o *options) flags() (flags *flag.FlagSet, names *string, list *bool, judged *string) {
	flags = flag.NewFlagSet("crontorture", flag.ContinueOnError)
	names = flags.String("systems", "", "names of systems, with commas; the flag -list shows them")
	list = flags.Bool("list", false, "list the systems")
	judged = flags.String("check", "", "judge the evidence in this folder again, and start nothing")
	flags.StringVar(&o.out, "out", "torture-report", "folder for the report and the evidence")
	flags.Uint64Var(&o.seed, "seed", 1, "the same seed makes the same faults")
	flags.DurationVar(&o.length, "for", time.Minute, "how long jobs fall due")
	flags.DurationVar(&o.calm, "calm", 0, "how much longer than some seconds it is from one fault to the next")
	flags.StringVar(&o.disk, "disk", "512m", "size of the file system for the data of nodes and store, which is in memory and needs root")
	flags.DurationVar(&o.settle, "settle", 15*time.Second, "how long a system has after its start before anything is expected of it")
	flags.DurationVar(&o.limits.Grace, "grace", 2*time.Second, "how late a run may start without being late")
	flags.StringVar(&o.belfry, "belfry", "", "the program belfry, for the systems belfry-…")
	flags.StringVar(&o.generic, "generic", "", "a JSON file that describes a system by commands")
	for _, kind := range []string{"redis", "postgres", "mariadb", "etcd"} {
		flags.Func(kind, "address of a "+kind+" to use in place of one that is started here; it is not broken", func(s string) error {
			o.stores[kind] = s
			return nil
		})
	}
	return flags, names, list, judged
}

// tortureAll goes on with the next system when one fails: the report is of those that were tried.
func tortureAll(ctx context.Context, o *options, all []*system, names []string) error {
	var chosen []*system
	for _, name := range names {
		found := false
		for _, s := range all {
			if s.Name == name {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return fmt.Errorf("no system %q: -list shows them", name)
		}
	}
	r := &report{}
	var failed error
	for _, s := range chosen {
		fmt.Fprintf(os.Stderr, "%s: %s of faults with seed %d\n", s.Name, o.length, o.seed)
		e, result, err := torture(ctx, o, s)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.Name, err))
			continue
		}
		r.add(e, result)
		// After each one: a long run may be interrupted.
		if err := r.write(o.out); err != nil {
			return err
		}
	}
	fmt.Print(r.table())
	return failed
}

// rejudge makes a report from the folders of earlier runs.
func rejudge(dir string) error {
	plans, err := filepath.Glob(filepath.Join(dir, "*", evidenceFile))
	if err != nil {
		return err
	}
	if len(plans) == 0 {
		return fmt.Errorf("%s has no folder with a %s", dir, evidenceFile)
	}
	r := &report{}
	for _, plan := range plans {
		e, result, err := judge(filepath.Dir(plan))
		if err != nil {
			return err
		}
		r.add(e, result)
	}
	fmt.Print(r.table())
	return r.write(dir)
}
