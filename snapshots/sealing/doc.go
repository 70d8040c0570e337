// Package sealing encrypts certificates with their keys to recipients of age, and opens them with
// identities.
//
// It promises that an opened certificate is the one that the snapshot's manifest names, and that no
// error holds anything of a key. It cannot tell who sealed a certificate: recipients are public, and
// everybody can encrypt to them. age encrypts to other bytes each time; [snapshots.Draft.WithSealed]
// keeps the bytes of certificates that did not change.
package sealing
