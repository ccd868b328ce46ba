//go:build !race

package cron

// raceDetector is set in test binaries built with -race, which makes code several times slower:
// times mean nothing then.
const raceDetector = false
