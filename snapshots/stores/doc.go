// Package stores opens a snapshot store by its URL. It is where the programs
// are wired; what they are made of declares the few methods that it calls, and
// knows no kind of store.
package stores
