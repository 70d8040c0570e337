// Package inputs holds the Kubernetes objects that one compile is made from,
// as typed values that know where they stand, and gathers them from manifests.
//
// An object that breaks its schema gets a diagnostic and is left out; kinds
// that the compiler does not read are counted. What the objects mean, and
// whether they mean anything, is left to package routing.
package inputs
