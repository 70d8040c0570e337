// Package inputs holds the Kubernetes objects that one compile is made from,
// as typed values that know where they stand, and gathers them from manifests.
// Objects of kinds that the configuration names are there with their content, as
// it is written.
//
// An object that breaks its schema gets a diagnostic and is left out; kinds
// that the compiler does not read are counted. Which objects the configuration
// selects is decided here too, in the same way for files and for a cluster. What
// the objects mean, and whether they mean anything, is left to package ingress.
//
// # Decisions
//
// Objects of other kinds are content, as it is written, of a kind that is read anyway a
// second time. Nothing is known of their schema, so that a probe cannot tell a mistake of
// a template from one of an object: what fails at an object is its fault, and the
// template is executed again without it, so that a loop that fails at many of them needs
// few rounds. Not to name a kind is a mistake: a misspelt kind would have no objects, for
// ever and without a word.
//
// What a cluster selects is selected here once more, by the same function for files, so
// that a directory and a cluster that hold the same give the same.
package inputs
