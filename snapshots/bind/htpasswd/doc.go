// Package htpasswd reads lines of NAME:HASH, and says which of the hashes HAProxy can
// check, and how long it takes for that. See [Parse].
//
// HAProxy checks a password with crypt(3) on the thread of the connection, so a costly
// hash holds up other connections. No [Problem] holds any part of a hash.
package htpasswd
