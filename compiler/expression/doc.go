// Package expression decides which regular expressions the authors of objects may write.
//
// They are compiled and run by HAProxy, with PCRE, for requests of everybody. So each has to
// be one that PCRE takes and reads as Go does, since PCRE's own verdict comes one expression
// a run of haproxy; and one that costs little on any input. PCRE goes back and tries again
// where several ways are possible: an expression with two such places can take 80 ms of a
// worker's only thread for one path of 8 KiB.
//
// [Parse] therefore takes a part of the language: literals, classes, groups, alternatives,
// repetitions, ^, $, \b and (?i). What it refuses is said with a place and a hint. The bound
// of the cost is computed from the expression, see cost.go.
//
// # Decisions
//
// Regular expressions of tenants are judged before HAProxy sees them
// (compiler/expression): it reports one that PCRE refuses and stops, and runs any other
// for as long as it takes, for everybody's requests.
package expression
