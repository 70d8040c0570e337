//go:build race

package testscripts

const raceDetector = true
