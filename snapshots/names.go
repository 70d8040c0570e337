package snapshots

import (
	"errors"
	"fmt"
	"strings"
)

// ErrBadName is returned for the path of a file that an instance could not keep
// under the name that haproxy.cfg would use.
var ErrBadName = errors.New("not a file name that the Dataplane API keeps")

// The folders of a snapshot.
const (
	MapsFolder         = "maps/"
	filesFolder        = "files/"
	certificatesFolder = "certs/"
)

// maxName leaves room for the hash in a file name of at most 255 bytes.
const maxName = 240

// Check reports the first file of the draft whose name no instance could keep, or
// certificate reference that none could follow, or sealed certificate that is not
// encrypted; for a name the error wraps [ErrBadName]. The Dataplane API
// replaces every byte of a name but letters, digits, '_', '-' and the last dot,
// so a name must be free of them.
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
