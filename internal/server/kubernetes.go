package server

import (
	"fmt"
	"os"

	kubeexec "github.com/belfry-cron/belfry/executor/kubernetes"
	"github.com/belfry-cron/belfry/internal/remote/kube"
	"github.com/belfry-cron/belfry/internal/server/config"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

// makeKubernetes makes the executor of Jobs, which is there without clusters, too: a later
// configuration may have some. A worker without a store hands no work over.
func (s *Server) makeKubernetes() error {
	if s.measured == nil {
		return nil
	}
	s.jobs = kubeexec.New(kubeexec.Config{
		Store: s.measured, OutputLimit: int(s.Settings.Output), Wrote: func(run job.ID) { s.followers.Wrote(run) }, Log: s.Log,
	})
	s.closers = append(s.closers, func() error { s.jobs.Close(); return nil })
	return s.setClusters(s.Settings)
}

// setClusters opens the clusters of a configuration.
func (s *Server) setClusters(c config.Server) error {
	if s.jobs == nil {
		return nil
	}
	clusters := map[string]kubeexec.Cluster{}
	if c.Has(store.RoleWorker) {
		for name, of := range c.Kubernetes.Clusters {
			client, err := openCluster(of)
			if err != nil {
				return fmt.Errorf("kubernetes.clusters.%s: %w", name, err)
			}
			clusters[name] = kubeexec.Cluster{
				Client: client, Namespaces: of.Namespaces, KubeNamespaces: of.KubeNamespaces, Images: of.Images,
				ServiceAccounts: of.ServiceAccounts, Capabilities: of.Capabilities, UnsafePods: of.UnsafePods,
			}
		}
	}
	s.jobs.Set(clusters)
	return nil
}

func openCluster(c config.Cluster) (*kube.Client, error) {
	if c.InCluster {
		return kube.InCluster(os.Getenv)
	}
	return kube.Open(c.Kubeconfig, c.Kubeconfig, c.Context)
}
