//go:build race

package docs_test

// raceDetector says that the programs run with the race detector, several times as slow.
const raceDetector = true
