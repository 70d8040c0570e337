// Package controller keeps a store up to date with the objects, templates and configuration that a compiler reads.
// [Run] is the loop: it waits for changes, compiles, and publishes what came of it. It also says how it is getting on
// ([Status]), and holds back a draft that lost too much ([ShrinkError]).
//
// What a compile is made of, and what it leaves out, is the business of package compiler.
//
// # Decisions
//
// A corrupt newest snapshot is followed by the next revision, in all stores. The guard
// against mass losses then compares with the newest that can be read
// (publish.go). In git this is for a tip that has the tag of a snapshot. Any
// other commit on the branch was made by a person, who decides.
//
// A configuration that changes is on trial until it has compiled. It is judged by itself
// first, by the parser and by HAProxy; what only templates make wrong of it shows in the
// compile, and then the compiler goes back to the one before, too. It is read when it has
// been quiet for a moment, for half of a file can look like a whole one. The compiler
// stays ready: the one before works.
package controller
