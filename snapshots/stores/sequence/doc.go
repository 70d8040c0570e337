// Package sequence decides what a store writes next: it is the part of
// publishing that every kind of store has in common, as a pure function.
//
// It promises that revisions are consecutive, that the same content twice in a
// row is one snapshot, and that a draft which could not be read back, or which
// would configure nothing, is refused before anything is written. Locking,
// reading the head and writing are the stores' own.
package sequence
