//go:build race

package pusher

// killStride is how many steps apart pushers are killed. The race detector makes each
// life last several times as long, and needs to see only some.
const killStride = 11
