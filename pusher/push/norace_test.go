//go:build !race

package push

// somePairs is how many pairs are applied to HAProxy.
const somePairs = 2000
