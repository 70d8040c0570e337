//go:build !race

package pusher

// killStride is how many steps apart pushers are killed: each counts.
const killStride = 1
