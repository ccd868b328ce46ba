// Package programs builds and runs the programs of examples, and restarts instances of one while
// its job is due each second.
package programs
