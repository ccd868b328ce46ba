//go:build !race

package cron

// raceDetector tells that the test binary was built with -race, which makes code
// several times slower: times mean nothing then.
const raceDetector = false
