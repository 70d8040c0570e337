// Package storetest is the contract of a snapshot store, as a test suite. Every
// kind of store runs it, and so every kind behaves alike where the pusher and
// the compiler can see it:
//
//   - A snapshot is there whole and verified, or not at all: [Run] stops writers
//     at every step, tampers with what is stored, and reads while others write.
//   - Revisions are consecutive, whoever writes, and nothing that was published
//     is lost.
//   - What cannot be read is an error, and never an empty store.
//
// What is particular to a store, such as its commits, is for its own tests.
package storetest
