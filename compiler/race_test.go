//go:build race

package compiler_test

// share is of how many attacks, or changes, one is made. The race detector makes
// them ten times slower, and needs to see only some.
const share = 4
