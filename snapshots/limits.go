package snapshots

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrBadName is returned for a file path that an instance could not keep under the name
// that haproxy.cfg uses.
var ErrBadName = errors.New("not a file name that the Dataplane API keeps")

// The folders of a snapshot.
const (
	MapsFolder         = "maps/"
	filesFolder        = "files/"
	certificatesFolder = "certs/"
)

// maxName leaves room for the hash in a file name of at most 255 bytes.
const maxName = 240

// Check reports the first thing in the draft that no instance could take: a file name, a
// certificate reference, or a sealed certificate that is not encrypted. For a name the
// error wraps [ErrBadName]. The Dataplane API replaces every byte of a file name except
// letters, digits, '_', '-' and the last dot, so a name may hold no others.
func (d Draft) Check() error {
	for _, f := range d.Files {
		if err := CheckPath(f.Path); err != nil {
			return err
		}
	}
	for _, c := range d.Certificates {
		if err := c.Check(); err != nil {
			return err
		}
	}
	if err := checkCompanions(d.Certificates, d.Companions); err != nil {
		return err
	}
	return checkSealed(d.Files, d.Certificates, d.Recipients)
}

// CheckPath checks the path of a file of a snapshot.
func CheckPath(path string) error {
	switch {
	case path == ConfigFile, path == EndpointsFile:
		return nil
	case strings.HasPrefix(path, MapsFolder):
		return checkName(path, MapsFolder, ".map")
	case strings.HasPrefix(path, filesFolder):
		return checkName(path, filesFolder, "")
	case IsSealed(path):
		return checkName(strings.TrimSuffix(path, sealedExtension), certificatesFolder, ".pem")
	}
	return fmt.Errorf("%q: %w: it is neither in maps/ nor in files/", path, ErrBadName)
}

// checkName checks a path of one folder, with the given extension or any.
func checkName(path, folder, extension string) error {
	name, ok := strings.CutPrefix(path, folder)
	stem, ext, dotted := strings.Cut(name, ".")
	switch {
	case !ok || stem == "" || !dotted || ext == "" || !isPlain(stem+ext) || strings.Contains(ext, "."):
		return fmt.Errorf("%q: %w: it must be %sNAME.EXTENSION of letters, digits, _ and -", path, ErrBadName, folder)
	case extension != "" && "."+ext != extension:
		return fmt.Errorf("%q: %w: in %s it must end in %s", path, ErrBadName, folder, extension)
	case len(name) > maxName:
		return fmt.Errorf("%q: %w: it is longer than %d bytes", path, ErrBadName, maxName)
	}
	return nil
}

// isPlain reports whether s holds nothing but letters, digits, '_', '-' and '.'.
func isPlain(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '_' && c != '-' && c != '.'
	})
}

// The limits of a snapshot, in bytes. A configuration of 10,000 Ingresses takes about a
// tenth of them. Stores check them before they read, so that no content of a store can use
// up a reader's memory, and before they write, so that they publish nothing that readers
// refuse.
const (
	MaxFile     = 64 << 20  // of one file
	MaxSnapshot = 256 << 20 // of all files together
	MaxManifest = 8 << 20
)

// CheckSizes returns an error if files of these paths and sizes are too large for a
// snapshot.
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

// Largest lists the ten largest files with their sizes in bytes, for a message that a
// snapshot does not fit.
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
