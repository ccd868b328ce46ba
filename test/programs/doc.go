// Package programs builds and runs the example programs, and restarts instances of one whose job is
// due each second.
package programs
