// Package pem reads certificates and private keys, and refuses those that HAProxy would not start with.
//
// [CheckKeyPair] and [JoinKeyPair] are for a certificate with its key, [ParseAuthorities] is for a
// ca-file, and [ServingFaults] says why clients would refuse a certificate that HAProxy serves. Reading
// a certificate makes it canonical: nothing else that stood in the PEM reaches an instance. No error
// holds any part of a key. No function reads the clock.
//
// The package imports nothing else of this module, so that the contract can use it too.
package pem
