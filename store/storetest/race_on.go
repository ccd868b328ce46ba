//go:build race

package storetest

// raceDetector tells that the test binary was built with -race.
const raceDetector = true
