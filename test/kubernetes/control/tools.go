//go:build tools

// Package control pins the programs of a control plane of Kubernetes, which tests with the tag control
// build and start.
package control

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)
