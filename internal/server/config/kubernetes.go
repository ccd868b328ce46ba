package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
)

// Kubernetes are the clusters in which jobs with run.kubernetes run.
type Kubernetes struct {
	Clusters map[string]Cluster `json:"clusters,omitzero" items:"100" keys:"names" doc:"The clusters that jobs name; default is that of jobs which name none." why:"no job reaches a cluster that is not listed" reload:"yes"`
}

// Cluster is a cluster of Kubernetes, and what jobs may do there.
type Cluster struct {
	InCluster  bool   `json:"in_cluster,omitzero" doc:"The cluster that this node is a pod of, with its service account." reload:"yes"`
	Kubeconfig string `json:"kubeconfig,omitzero" max:"4096" doc:"The file of a kubeconfig that has a token or a certificate." reload:"yes"`
	Context    string `json:"context,omitzero" max:"256" doc:"The context of the kubeconfig." default:"the current one" reload:"yes"`

	Namespaces     []string `json:"namespaces,omitzero" items:"1000" max:"128" doc:"The namespaces of Belfry whose jobs may use the cluster, as patterns in which * stands for any text." default:"all" why:"teams that share a server may have clusters of their own" reload:"yes"`
	KubeNamespaces []string `json:"kube_namespaces,omitzero" items:"1000" max:"128" doc:"The namespaces of the cluster that jobs may name, as patterns." default:"that of the context or of the pod" why:"the account of this node may reach others" reload:"yes"`
	Images         []string `json:"images,omitzero" items:"256" max:"1024" doc:"The images that jobs may name, as patterns: registry.example.com/*." default:"all" why:"a pod has no rights by its image" reload:"yes"`

	ServiceAccounts []string `json:"service_accounts,omitzero" items:"256" max:"256" doc:"The service accounts that pods of jobs may have, as patterns." default:"none" why:"a pod has the rights of its account in the cluster" reload:"yes"`
	Capabilities    []string `json:"capabilities,omitzero" items:"64" max:"64" doc:"The Linux capabilities of containers, such as CHOWN." default:"none" why:"few jobs need one; images that change users need CHOWN, SETUID and SETGID" reload:"yes"`
	UnsafePods      bool     `json:"unsafe_pods,omitzero" doc:"Let pod templates ask for rights on the nodes of the cluster: privileged containers, hostPath, hostNetwork and other capabilities." why:"anyone who may define jobs could then take over the nodes of the cluster" reload:"yes"`
}

// beside resolves the files of the section relative to a directory.
func (k Kubernetes) beside(dir string) Kubernetes {
	k.Clusters = maps.Clone(k.Clusters)
	for name, c := range k.Clusters {
		if c.Kubeconfig != "" && !filepath.IsAbs(c.Kubeconfig) {
			c.Kubeconfig = filepath.Join(dir, c.Kubeconfig)
			k.Clusters[name] = c
		}
	}
	return k
}

func (k Kubernetes) check() error {
	for _, name := range slices.Sorted(maps.Keys(k.Clusters)) {
		c := k.Clusters[name]
		at := "kubernetes.clusters." + name
		switch {
		case c.InCluster == (c.Kubeconfig != ""):
			return fmt.Errorf("%s: must have one of kubeconfig and in_cluster: set kubeconfig to a file, or in_cluster to true on nodes that are pods of the cluster", at)
		case c.InCluster && c.Context != "":
			return fmt.Errorf("%s.context: only with kubeconfig: leave it out", at)
		}
	}
	return nil
}
