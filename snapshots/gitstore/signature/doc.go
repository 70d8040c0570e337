// Package signature signs git commits, and tells who signed them: with keys of
// SSH, in the format of ssh-keygen -Y, and of OpenPGP, as git itself does with
// gpg.format=ssh and openpgp. It works on the text of commits and knows no
// repository, and it starts no program. Texts of other stores are signed in a namespace
// of their own, so that a signature of one is never taken for that of a commit.
//
// It promises that a key which cannot be used is an error and never the reason of
// a commit without a signature; that the same commit and key give the same
// signature; and that what a list of allowed signers says is held or is an error,
// but never passed over. Time is the commit's own: a person with a key can write an
// older one into a commit, so that a key which is not to be trusted any more has
// to leave the list.
package signature
