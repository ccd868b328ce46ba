//go:build !race

package storetest

// RaceDetector tells that the test binary was built with -race.
const RaceDetector = false
