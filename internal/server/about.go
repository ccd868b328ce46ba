package server

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/cron"
	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/internal/phrase"
	"github.com/belfry-cron/belfry/internal/reason"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/health"
	"github.com/belfry-cron/belfry/internal/server/nodeinfo"
	"github.com/belfry-cron/belfry/internal/server/service"
	"github.com/belfry-cron/belfry/internal/sys/clock"
	"github.com/belfry-cron/belfry/internal/sys/failurelog"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
	"github.com/belfry-cron/belfry/store/etcd"
	"github.com/belfry-cron/belfry/store/mysql"
	"github.com/belfry-cron/belfry/store/postgres"
	"github.com/belfry-cron/belfry/store/redis"
	"github.com/belfry-cron/belfry/store/sqlite"
)

// about describes the server.
func (s *Server) about() client.Server {
	c := s.Settings
	a := client.Server{
		Version: s.Version, Built: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, Node: c.Name, Roles: s.roles(), Started: s.since, Store: c.Store.Shown(), StoreVersion: s.storeVersion(),
		Zones: cron.ZoneTableVersion(), Timezone: string(c.Timezone),
	}
	if c.History != "" {
		a.History = c.History.Shown()
	}
	if b, known := health.LastBackup(c.Data); known && c.Store.File() != "" {
		a.Backup = b.At
	}
	for _, f := range []health.Finding{health.DataDirectory(c.Data), health.DiskSpace(c.Data), health.Separation(c), health.Shell(c), health.Backup(c, s.Now()), s.secretsHint()} {
		if f.Status != health.Well {
			a.Hints = append(a.Hints, service.HintOf(f.Status, f.Check, f.Found, f.Do))
		}
	}
	return a
}

const (
	// versionFor is how long the version of the store is believed: it may be upgraded while
	// this server runs.
	versionFor = time.Hour
	// versionMax bounds how long a page waits for it.
	versionMax = 2 * time.Second
)

// storeVersion returns the product and version of the store; "" if it does not answer.
func (s *Server) storeVersion() string {
	s.version.Lock()
	defer s.version.Unlock()
	if now := s.Now(); s.version.text != "" && now.Sub(s.version.read).Abs() < versionFor {
		return s.version.text
	}
	ctx, cancel := context.WithTimeout(context.Background(), versionMax)
	defer cancel()
	s.version.text, s.version.read = versionOf(ctx, s.Settings.Store), s.Now()
	return s.version.text
}

func versionOf(ctx context.Context, c config.Store) string {
	switch c.Kind() {
	case config.Postgres:
		about, _ := postgres.Check(ctx, string(c))
		return about.Server
	case config.MySQL:
		about, _ := mysql.Check(ctx, string(c))
		return about.Server
	case config.Redis:
		about, _ := redis.Check(ctx, string(c))
		return about.Server
	case config.Etcd:
		about, _ := etcd.Check(ctx, string(c))
		return strings.TrimSuffix("etcd "+about.Version, "etcd ")
	}
	return "SQLite " + sqlite.Version
}

// starts counts the attempts that the node starts, in addition to the observer.
type starts struct {
	worker.Observer
	minutes nodeinfo.Minutes
	now     func() time.Time
}

// Started implements [worker.Observer].
func (s *starts) Started(late time.Duration) {
	s.minutes.Add(s.now())
	s.Observer.Started(late)
}

// teller publishes the node's reports.
func (s *Server) teller() *nodeinfo.Reporter {
	c := s.Settings
	var low time.Time
	return &nodeinfo.Reporter{Store: s.measured, Clock: clock.Boot, About: func() nodeinfo.Info {
		stats := s.node.Stats()
		p50, p99 := s.metrics.StoreAnswers()
		disk := health.LittleSpace(c.Data)
		switch {
		case disk == "":
			low = time.Time{}
		case low.IsZero():
			low = s.Now()
		}
		return nodeinfo.Info{
			Node: s.Settings.Name, Session: stats.Session, Version: s.Version, Roles: s.roles(), Address: s.URL(), Joined: s.since,
			P50: p50, P99: p99, Partitions: stats.Partitions, Starts: s.starting.minutes.Hour(s.Now()), Warnings: s.warnings(), Disk: disk, DiskSince: low,
		}
	}}
}

// warnings are what a person should change about this node, although it works.
func (s *Server) warnings() (list []job.Reason) {
	if s.xxl.hasShortToken.Load() {
		list = append(list, reason.Say(phrase.ShortToken))
	}
	return list
}

// tell writes reports of the node until ctx ends.
func (s *Server) tell(ctx context.Context, t *nodeinfo.Reporter) {
	failures := failurelog.New(s.Log, "cannot write the description of this node to the store", "the description of this node is written again")
	t.Run(ctx, failures.Saw)
}

// sayLeftWithin bounds the last report of a node, which is only for people.
const sayLeftWithin = time.Second

// sayLeft reports that the node leaves, unless another version of the program continues it.
func (s *Server) sayLeft(ctx context.Context, t *nodeinfo.Reporter) {
	if s.carrying != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sayLeftWithin)
	defer cancel()
	if err := t.Tell(ctx, true); err != nil {
		s.Log.Debug("cannot write that the node leaves", "error", err)
	}
}

var _ nodeinfo.Notes = store.Store(nil)
