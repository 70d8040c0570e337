// Package leak finds private material in what is about to be published: private keys, of any origin,
// and values of Secrets that the compiler read. Its findings name the place, and never quote the
// material.
//
// It searches a text as it is, and as readers would decode it: without backslashes and percent signs,
// out of base64 (also in several lines), hexadecimal and gzip, and each of these inside the others,
// three deep.
//
// Not everything in a Secret is secret, and not every word in a Secret can be searched for everywhere:
// somebody could put the words of others into a Secret, and so keep these from being published. See
// [Index] for what counts. Callers decide what a finding leads to.
package leak
