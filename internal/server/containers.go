package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/belfry-cron/belfry/executor/container"
	"github.com/belfry-cron/belfry/executor/shell"
	"github.com/belfry-cron/belfry/internal/node/worker"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/internal/server/metrics"
	"github.com/belfry-cron/belfry/internal/sys/engine"
	"github.com/belfry-cron/belfry/job"
)

const (
	// engineFile in the data directory has the name of the node for its container engine.
	engineFile = "engine-node"
	// probeEvery is how often the engine is probed: a node without a working one gets no containers.
	probeEvery = 5 * time.Second
	// collectEvery is how often left containers are collected: attempts remove theirs, unless the
	// engine was away.
	collectEvery = time.Minute
)

// makeContainers makes the executor of containers, if the machine has an engine.
func (s *Server) makeContainers(ctx context.Context) error {
	socket := engine.Find(s.Settings.Containers.Socket, os.Getenv)
	if socket == "" {
		return nil
	}
	node, err := engineNode(s.Settings.Data)
	if err != nil {
		return err
	}
	s.containers = container.New(container.Config{Settings: containerSettings(s.Settings), Watch: s.watchdog, Engine: engine.New(socket), Node: node, Log: s.Log})
	s.closers = append(s.closers, func() error { s.containers.Close(); return nil })
	if c := s.CarryOver.node(); c != nil {
		for i := range c.Attempts {
			if outcome, err := c.Attempts[i].Claim.Outcome(); err == nil {
				s.containers.Expect(outcome.Run.ID, outcome.Run.Attempt)
			}
		}
	}
	for _, l := range s.watchdog.Left() {
		if _, err := worker.ReadKept(l.State); err == nil { // otherwise the node ends it
			s.containers.Expect(l.Key.Run, l.Key.Number)
		}
	}
	if _, err := s.containers.Probe(ctx); err != nil {
		s.Log.Warn("the container engine does not answer; this node runs no containers until it does", "socket", socket, "error", err)
		return nil
	}
	v, _ := s.containers.Version()
	s.Log.Info("containers run here", "engine", v.String(), "socket", socket)
	return nil
}

func containerSettings(c config.Server) container.Settings {
	return container.Settings{
		Images: c.Containers.Images, Mounts: config.Dirs(c.Containers.Mounts), Namespaces: c.Containers.Namespaces,
		Capabilities: c.Containers.Capabilities, PIDs: c.Containers.PIDs,
	}
}

// engineNode returns the id of the node with a data directory for its engine, which other nodes may
// share. It is stored, so that the node finds its containers after a restart.
func engineNode(data string) (string, error) {
	file := filepath.Join(data, engineFile)
	if rest, err := os.ReadFile(file); err == nil && len(rest) > 0 {
		return strings.TrimSpace(string(rest)), nil
	}
	name := strings.ToLower(rand.Text())
	if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
		return "", fmt.Errorf("keep the name of the node for its container engine: %w", err)
	}
	return name, nil
}

// watchEngine publishes whether the container engine works, and collects left containers, until ctx
// ends.
func (s *Server) watchEngine(ctx context.Context, publish func(handlers []string)) {
	if s.containers == nil {
		return
	}
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	var collected time.Time
	for {
		_, works := s.containers.Version()
		if works && time.Since(collected) >= collectEvery {
			collected = time.Now()
			if err := s.containers.Collect(ctx); err != nil && ctx.Err() == nil {
				s.Log.Warn("cannot collect containers of attempts that are over", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := s.containers.Probe(ctx)
		if ctx.Err() != nil || !changed {
			continue
		}
		publish(s.handlers())
		if v, works := s.containers.Version(); works {
			s.Log.Info("the container engine works", "engine", v.String())
		} else {
			s.Log.Warn("the container engine does not answer; this node gets no containers until it does", "error", err)
		}
	}
}

// folders remove the directories and volumes of flows that have ended.
type folders struct {
	commands   *shell.Executor
	containers *container.Executor // nil without an engine
}

// SettleFlows implements node.Folders.
func (f folders) SettleFlows(ctx context.Context, over func(ctx context.Context, runs []job.ID) ([]job.ID, error)) error {
	err := f.commands.SettleFlows(ctx, over)
	if f.containers == nil {
		return err
	}
	return errors.Join(err, f.containers.SettleFlows(ctx, over))
}

// containersMetrics returns what reads the work of the engine; nil without one.
func (s *Server) containersMetrics() func() metrics.Containers {
	if s.containers == nil {
		return nil
	}
	return func() metrics.Containers {
		c := metrics.Containers{}
		_, c.Works = s.containers.Version()
		c.Running, c.Collected = s.containers.Stats()
		return c
	}
}
