//go:build !race

// Package race tells tests whether they run with the race detector, which makes heavy computation several times
// as slow.
package race

// Enabled says that the program was built with the race detector.
const Enabled = false
