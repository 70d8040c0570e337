// Package sealing encrypts certificates with their keys to recipients of age, and
// opens them with identities.
//
// It promises that what is opened is what the snapshot's manifest names, and that no
// error holds anything of a key. Who sealed something it cannot tell: recipients are
// public, and everybody can encrypt to them. What is encrypted differs each time;
// [snapshots.Draft.WithSealed] keeps what is unchanged as it is.
package sealing
