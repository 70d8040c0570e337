// Package cli holds the commands of hapsnap, the program that people type: the verbs of the
// compiler and of the pusher, and what joins them. It is the only program that knows both
// halves. It runs in no pod, but for one verb: the provisioner, which makes fleets for Gateways and needs neither.
//
// A verb that one half has is that half's command, moved. Where both halves have a verb,
// the one here does what a person means by it: status shows the fleet and what was compiled,
// and diff takes snapshots, manifests and clusters alike. Both run the halves' own commands
// with the flags that they were given.
//
// Texts of the halves name their own program. Here they name this one.
package cli
