// Command compiler turns manifests into snapshots of HAProxy configurations.
//
// See `compiler --help`. It holds no credentials of any HAProxy instance: what
// it writes goes to a directory or a store, and the pusher takes it from there.
package main
