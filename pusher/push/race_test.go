//go:build race

package push

// somePairs is how many pairs are applied to HAProxy: the race detector makes each take
// several times as long.
const somePairs = 250
