// Package expression decides which regular expressions the authors of objects may write.
//
// HAProxy compiles and runs them, with PCRE, for everybody's requests. So PCRE and Go must read an
// expression alike, since HAProxy reports only one refused expression per run, and it must cost little
// on any input. PCRE goes back and tries again where several ways are possible: an expression with two
// such places can take 80 ms of a worker's only thread for one path of 8 KiB.
//
// [Parse] therefore accepts a part of the language: literals, classes, groups, alternatives,
// repetitions, ^, $, \b and (?i). It refuses everything else with a place and a hint. The bound of the
// cost is computed from the expression, see cost.go.
// # Decisions
//
// Regular expressions of tenants are judged before HAProxy sees them: HAProxy stops at an expression
// that PCRE refuses, and runs any other for as long as it takes, for everybody's requests.
package expression
