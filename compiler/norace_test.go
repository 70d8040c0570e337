//go:build !race

package compiler_test

// share is of how many attacks, or changes, one is made: each counts.
const share = 1
