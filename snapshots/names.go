package snapshots

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// ErrBadName is returned for the path of a file that an instance could not keep
// under the name that haproxy.cfg would use.
var ErrBadName = errors.New("not a file name that the Dataplane API keeps")

// isTokenByte tells the bytes that a path in a configuration consists of. A
// path ends at any other byte.
var isTokenByte = func() (is [256]bool) {
	for c := range is {
		is[c] = '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' ||
			strings.ContainsRune("._/-", rune(c))
	}
	return is
}()

// The folders of a snapshot.
const (
	mapsFolder         = "maps/"
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
		if err := checkFilePath(f.Path); err != nil {
			return err
		}
	}
	for _, c := range d.Certificates {
		if err := c.check(); err != nil {
			return err
		}
	}
	if err := checkCompanions(d.Certificates, d.Companions); err != nil {
		return err
	}
	return checkSealed(d.Files, d.Certificates, d.Recipients)
}

// checkFilePath checks the path of a file of a snapshot.
func checkFilePath(path string) error {
	switch {
	case path == ConfigFile, path == EndpointsFile:
		return nil
	case strings.HasPrefix(path, mapsFolder):
		return checkName(path, mapsFolder, ".map")
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
	case !ok || stem == "" || !dotted || ext == "" || !isName(stem+ext, "") || strings.Contains(ext, "."):
		return fmt.Errorf("%q: %w: it must be %sNAME.EXTENSION of letters, digits, _ and -", path, ErrBadName, folder)
	case extension != "" && "."+ext != extension:
		return fmt.Errorf("%q: %w: in %s it must end in %s", path, ErrBadName, folder, extension)
	case len(name) > maxName:
		return fmt.Errorf("%q: %w: it is longer than %d bytes", path, ErrBadName, maxName)
	}
	return nil
}

// hashedName puts the first 8 hexadecimal digits of the content's sha256 into a
// checked file name: "host.map" becomes "host-3f2a91c4.map".
func hashedName(name string, content []byte) string {
	sum := sha256.Sum256(content)
	stem, ext, _ := strings.Cut(name, ".")
	return stem + "-" + hex.EncodeToString(sum[:4]) + "." + ext
}

// checkLayout checks the directories of an instance: absolute, and of bytes
// that need no quoting in haproxy.cfg.
func checkLayout(l Layout) error {
	for _, dir := range []string{l.Maps, l.Certificates, l.General} {
		if !strings.HasPrefix(dir, "/") || !isName(strings.ReplaceAll(dir, "/", ""), "+@=~") {
			return fmt.Errorf("directory %q of the instance is not absolute and plain", dir)
		}
	}
	return nil
}
