// Package discovery finds the instances of a fleet among the pods of a cluster, with
// the credentials that Secrets hold for them.
//
// A pod is an instance as soon as it has an address, ready or not: an instance turns
// ready only by what it is pushed. One that terminates or has ended is none any more.
//
// What was found is held while the API server is out of reach, or while a Secret is
// missing or cannot be used: instances never leave for what could not be read.
package discovery
