package snapshots

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxListed is how many files a message about the size of a snapshot lists.
const maxListed = 10

// Largest lists the ten largest files with their sizes in bytes, for the message
// that a snapshot does not fit where it should go.
func Largest(files []File) string {
	bySize := slices.SortedFunc(slices.Values(files), func(a, b File) int {
		return cmp.Or(cmp.Compare(len(b.Content), len(a.Content)), cmp.Compare(a.Path, b.Path))
	})
	var sizes []string
	for _, f := range bySize[:min(len(bySize), maxListed)] {
		sizes = append(sizes, fmt.Sprintf("%s %d", f.Path, len(f.Content)))
	}
	return strings.Join(sizes, ", ")
}
