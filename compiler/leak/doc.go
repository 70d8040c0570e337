// Package leak finds private material in what is about to be published: private
// keys, of any origin, and values of Secrets that the compiler read. It says
// what is where, and never what it says.
//
// A text is looked through as it is, and as whatever reads it would decode it:
// without backslashes and percent signs, out of base64 (also in several lines),
// hexadecimal and gzip, and each of these inside the others, three deep.
//
// Not everything in a Secret is secret, and not every word that is there can be
// looked for everywhere: somebody could choose the words of others for a Secret of
// theirs, and keep all of them from being published. See [Index] for what counts.
// What becomes of a finding is up to the caller.
package leak
