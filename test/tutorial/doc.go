// Package tutorial runs docs/tutorial.md and docs/flows.md as a reader would: command by command,
// from their text alone.
package tutorial
