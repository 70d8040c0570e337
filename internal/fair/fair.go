// Package fair divides what there is too little of among several parties.
package fair

import "slices"

// Allowance returns how much each of several parties, such as namespaces, may have if all together may have so much. Nobody loses anything
// if all fits. Otherwise, those lose something that have most.
func Allowance(sizes []int, all int) int {
	sizes = slices.Sorted(slices.Values(sizes))
	for i, size := range sizes {
		if share := all / (len(sizes) - i); size > share {
			return share
		}
		all -= size
	}
	if len(sizes) == 0 {
		return 0
	}
	return sizes[len(sizes)-1]
}
