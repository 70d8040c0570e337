// Package inputs holds the Kubernetes objects that one compile is made from,
// as typed values that know where they stand, and gathers them from manifests.
// Objects of kinds that the configuration names are there with their content, as
// it is written.
//
// An object that breaks its schema gets a diagnostic and is left out; kinds
// that the compiler does not read are counted. Which objects the configuration
// selects is decided here too, in the same way for files and for a cluster. What
// the objects mean, and whether they mean anything, is left to package routing.
package inputs
