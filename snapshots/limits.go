package snapshots

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The limits of a snapshot, in bytes. A configuration of 10,000 Ingresses has about a
// tenth of them. Stores check them before they read, so that nothing that somebody puts
// into a store takes the memory of who reads it, and before they write, so that nothing
// is published that nobody reads.
const (
	MaxFile     = 64 << 20  // of one file
	MaxSnapshot = 256 << 20 // of all files together
	MaxManifest = 8 << 20
)

// CheckSizes returns an error for files that are too large for a snapshot, by their
// paths and sizes.
func CheckSizes(files []FileDigest) error {
	var all int64
	for _, f := range files {
		if f.Size < 0 || f.Size > MaxFile {
			return fmt.Errorf("%s has %d bytes, and a file of a snapshot may have %d", f.Path, f.Size, MaxFile)
		}
		all += f.Size
		if all > MaxSnapshot {
			return fmt.Errorf("the files have more than %d bytes together", MaxSnapshot)
		}
	}
	return nil
}

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
