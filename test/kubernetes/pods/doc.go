// Package pods compares the fields of pod templates that Belfry knows with the types of Kubernetes.
package pods
