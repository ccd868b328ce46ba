package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/internal/node/recovery"
	"github.com/belfry-cron/belfry/internal/node/unreported"
	"github.com/belfry-cron/belfry/internal/node/watchdog"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/runlog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/etcd"
	"github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/redis"
)

// reach is the access of a server's watchdog to the store after the server's death.
type reach struct {
	Store config.Store
	// Apart is set if history is separate. Servers ship the ends of the report there.
	Apart     bool
	Defaults  job.Defaults
	Revisions int
	// Spool is the directory of the results that the server has not reported.
	Spool string
	// Dir and Env of the server: an address may name files, and drivers read
	// passwords and certificates from PGPASSWORD and the like.
	Dir string
	Env []string
	// LogFormat is the format of the server's log, which the watchdog continues.
	LogFormat config.LogFormat
}

// reach returns the watchdog's access to the store; nil if it has none: a file is for one process,
// and the next server settles the attempts of this one.
func (s *Server) reach() ([]byte, error) {
	if s.Settings.Store.File() != "" {
		return nil, nil
	}
	r := reach{Store: s.Settings.Store, Apart: s.Settings.History != "", Defaults: s.Settings.JobDefaults(), Revisions: s.Settings.Keep.Revisions, LogFormat: s.Settings.LogFormat}
	r.Spool = filepath.Join(s.Settings.Data, unreported.Folder)
	r.Dir, _ = os.Getwd() // a deleted directory has no files
	r.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "SSL_CERT_") && !strings.HasPrefix(v, "HOME=")
	})
	return json.Marshal(r)
}

const (
	// reportFirst and reportMost are the waits before the death of a server is
	// reported again to a store that could not be reached.
	reportFirst, reportMost = 250 * time.Millisecond, 5 * time.Second
)

// ReportDeath is the report of a server's watchdog: it settles the server's attempts in the
// store, so that their slots are free at once. It retries until the store accepts it, ctx
// ends or the next server on the machine does the same.
func ReportDeath(ctx context.Context, d watchdog.Dead) {
	var r reach
	if err := json.Unmarshal(d.Settings, &r); err != nil {
		d.Log("cannot report the end of the server: " + err.Error())
		return
	}
	_ = os.Chdir(r.Dir) // the driver reports missing files
	for _, v := range r.Env {
		name, value, _ := strings.Cut(v, "=")
		_ = os.Setenv(name, value)
	}
	dead := recovery.DeadSession{Session: d.Session, Ended: d.Ended, Began: func(run job.ID, attempt int) bool {
		return d.Journal.Began(watchdog.Key{Run: run, Number: attempt})
	}, Replaced: d.Replaced}
	if d.Keeps() {
		dead.Kept = d.IsKept
	}
	failed := false
	for wait := reportFirst; ; wait = min(2*wait, reportMost) {
		err := r.report(ctx, &dead, d.Log)
		if err == nil || errors.Is(err, unreported.ErrInUse) { // the next server makes the same report
			return
		}
		if !failed {
			d.Log("cannot report the end of the server yet: " + err.Error())
		}
		failed = true
		select {
		case <-ctx.Done():
			d.Log("gave up reporting the end of the server: its runs are lost after the lost_after of their jobs, unless it starts before")
			return
		case <-time.After(wait):
		}
		select {
		case <-d.Ended:
			if d.Replaced() {
				return
			}
		default:
		}
	}
}

// report settles the attempts of a dead server.
func (r *reach) report(ctx context.Context, dead *recovery.DeadSession, log func(string)) error {
	lines := r.logTo(os.Stderr)
	ended, flush := logEnds(lines) //nolint:contextcheck // the log is flushed when ctx has ended
	s, err := r.open(ctx, ended)
	if err != nil {
		return err
	}
	defer flush()
	defer s.Close()
	if err := r.deliver(ctx, s, lines); err != nil {
		return err
	}
	as := recovery.On(s)
	settled, err := dead.Recover(ctx, as)
	if err != nil {
		return err
	}
	late, err := dead.Again(ctx, as)
	if given, lost := len(settled.GivenBack)+len(late.GivenBack), len(settled.Lost)+len(late.Lost); given+lost > 0 {
		log(fmt.Sprintf("the server is gone: released %d runs that had not started; %d runs are lost", given, lost))
	}
	return err
}

// deliverWithin bounds the delivery of a spool by a watchdog: the next server waits for it.
const deliverWithin = watchdogWait / 3

// deliver reports the results that the server has not reported, before its other attempts are
// settled: the first result of an attempt counts.
func (r *reach) deliver(ctx context.Context, s store.Control, log *slog.Logger) error {
	at, cancel := context.WithCancel(ctx)
	cancel() // it does not wait for the next server
	spool, err := unreported.Open(at, unreported.Config{Dir: r.Spool, Log: log})
	if err != nil {
		return err
	}
	defer func() { _ = spool.Close() }()
	session, err := job.NewID(time.Now(), rand.Reader)
	if err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, deliverWithin)
	defer cancel()
	_, err = spool.Deliver(ctx, session, func(ctx context.Context, session job.ID, results []store.Result) ([]store.FinishOutcome, error) {
		if r.Apart { // the output belongs to history, which the watchdog cannot reach
			for i := range results {
				results[i].Output = nil
			}
		}
		return s.Finish(ctx, session, results)
	})
	return err
}

// logTo returns a log in the format of the server's.
func (r *reach) logTo(out io.Writer) *slog.Logger {
	if r.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(out, nil))
	}
	return slog.New(slog.NewTextHandler(out, nil))
}

// logEnds returns functions that collect and log the runs that the report ends, mostly as lost,
// like the server would.
func logEnds(log *slog.Logger) (ended func(store.Ends), flush func()) {
	lines := runlog.New(log, nil)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	return lines.Ended, func() { lines.Run(over) }
}

// open opens the store without checks or changes: the server has used it, and each round trip
// delays the jobs whose slots are still taken.
func (r *reach) open(ctx context.Context, ended func(store.Ends)) (store.Control, error) {
	if r.Apart {
		return openControl(ctx, r.Store, controlOptions{defaults: r.Defaults, revisions: r.Revisions, keepDefaults: true, ended: ended})
	}
	switch r.Store.Kind() {
	case config.Etcd:
		return etcd.Open(ctx, string(r.Store), etcd.Options{Defaults: r.Defaults, Revisions: r.Revisions, KeepDefaults: true, Ended: ended})
	case config.MySQL:
		return mysql.Open(ctx, string(r.Store), mysql.Options{Defaults: r.Defaults, Revisions: r.Revisions, KeepDefaults: true, InUse: true, Ended: ended})
	case config.Redis:
		return redis.Open(ctx, string(r.Store), redis.Options{Defaults: r.Defaults, Revisions: r.Revisions, KeepDefaults: true, Ended: ended})
	}
	return postgres.Open(ctx, string(r.Store), postgres.Options{Defaults: r.Defaults, Revisions: r.Revisions, KeepDefaults: true, InUse: true, Ended: ended})
}
