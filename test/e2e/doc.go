// Package e2e has the end-to-end tests: the program as people install it, jobs that
// write down what they saw, and faults. It has no code of its own beside them.
//
// A test starts servers with data directories of their own and asks them by the
// API. What the jobs write is compared with what the server says, by package
// evidence. See docs/testing.md.
package e2e
