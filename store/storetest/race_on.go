//go:build race

package storetest

// RaceDetector is set in test binaries built with -race.
const RaceDetector = true
