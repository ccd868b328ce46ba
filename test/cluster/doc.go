// Package cluster has the crash tests: nodes as people install them, on a database
// server that the test starts, and everything that ends or stands still by force. It
// has no code of its own beside them, and they have the build tag servers.
//
// The jobs are the ones of test/e2e: they write down what they saw, and package evidence
// compares that with what the nodes say. make cluster runs the tests; see
// docs/testing.md.
package cluster
