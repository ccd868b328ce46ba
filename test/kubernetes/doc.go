// Package kubernetes has the tests of packaging/kubernetes: the Helm chart, and the kustomize
// bases, which are made from it.
package kubernetes
