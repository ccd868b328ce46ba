// Package tutorial runs docs/tutorial.md as a reader would: command by command, from its text
// alone.
package tutorial
