package snapshots

import (
	"bytes"
	"cmp"
	stdpem "encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// CertificateMode says which certificate of its Secret a snapshot is served with, and
// where that is from.
type CertificateMode string

// The modes. All but the first name a version, so that another certificate is another
// snapshot.
const (
	ModeReference CertificateMode = ""          // whichever is in the Secret at the time
	ModeExact     CertificateMode = "exact"     // this version, of the Secret
	ModeSealed    CertificateMode = "sealed"    // this version, encrypted in a file of the snapshot
	ModeCompanion CertificateMode = "companion" // this version, in a Secret beside the snapshot
)

// sealedExtension ends the names of files with sealed certificates.
const sealedExtension = ".age"

// sealedBlock is the type of age's armour, and sealedMagic what is in it first.
const (
	sealedBlock = "AGE ENCRYPTED FILE"
	sealedMagic = "age-encryption.org/v1\n"
)

var (
	versionForm   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	recipientForm = regexp.MustCompile(`^age1[0-9a-z]{50,}$`)
)

// ErrNotSealed is returned for a file that should be encrypted and is not.
var ErrNotSealed = errors.New("not a file that age encrypted")

// Versioned reports whether the reference is to one version of a certificate. The
// version is empty if there was none that could be served when it was compiled.
func (c CertificateRef) Versioned() bool { return c.Mode != ModeReference }

// SealedFile returns the path of the file that holds the certificate encrypted, "" if
// there is none.
func (c CertificateRef) SealedFile() string {
	if c.Mode != ModeSealed || c.Version == "" {
		return ""
	}
	return c.File + sealedExtension
}

// IsSealed reports whether a path is one of an encrypted certificate.
func IsSealed(path string) bool {
	return strings.HasPrefix(path, certificatesFolder) && strings.HasSuffix(path, ".pem"+sealedExtension)
}

func (c CertificateRef) checkMode() error {
	switch {
	case !slices.Contains([]CertificateMode{ModeReference, ModeExact, ModeSealed, ModeCompanion}, c.Mode):
		return fmt.Errorf("certificate %s is kept as %q, which is not known", c.File, c.Mode)
	case c.Versioned() && (c.Use != UseCertificate || c.Secret == SecretName{}):
		return fmt.Errorf("certificate %s has no versions", c.File)
	case c.Version != "" && (!c.Versioned() || !versionForm.MatchString(c.Version)):
		return fmt.Errorf("certificate %s has the version %q", c.File, c.Version)
	}
	return nil
}

// checkSealed checks that the files with sealed certificates are those of the
// references, and encrypted. That they hold what the references say, only the holder
// of an identity can tell.
func checkSealed(files []File, refs []CertificateRef, recipients []string) error {
	content := map[string][]byte{}
	for _, f := range files {
		if IsSealed(f.Path) {
			content[f.Path] = f.Content
		}
	}
	for _, ref := range refs {
		path := ref.SealedFile()
		if path == "" {
			continue
		}
		if err := checkArmour(content[path]); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if len(recipients) == 0 {
			return fmt.Errorf("%s is sealed to nobody", path)
		}
		delete(content, path)
	}
	for _, f := range files {
		if _, foreign := content[f.Path]; foreign {
			return fmt.Errorf("%s belongs to no certificate", f.Path)
		}
	}
	for _, r := range recipients {
		if !recipientForm.MatchString(r) {
			return fmt.Errorf("%q is not a recipient of age", r)
		}
	}
	return nil
}

// checkArmour refuses what is not one file of age's, whole and alone: nothing in the
// clear can be before, in or after it.
func checkArmour(content []byte) error {
	block, rest := stdpem.Decode(content)
	if block == nil || block.Type != sealedBlock || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return ErrNotSealed
	}
	if !bytes.HasPrefix(content, []byte("-----BEGIN "+sealedBlock+"-----\n")) || !bytes.HasPrefix(block.Bytes, []byte(sealedMagic)) {
		return ErrNotSealed
	}
	if bytes.Contains(block.Bytes, []byte("PRIVATE KEY")) {
		return ErrNotSealed
	}
	return nil
}

// certificateLines are those of certificate references and of the recipients of those that
// are sealed.
func certificateLines(refs []CertificateRef, recipients []string) []string {
	var lines []string
	for _, c := range refs {
		line := fmt.Sprintf("certificate %q %s", c.File, c.Secret)
		if c.Versioned() {
			line += fmt.Sprintf(" %s %s", c.Mode, cmp.Or(c.Version, "none"))
		}
		if c.Use != UseCertificate {
			line = string(c.Use) + " " + line
		}
		lines = append(lines, line+"\n")
	}
	for _, r := range recipients {
		lines = append(lines, fmt.Sprintf("recipient %q\n", r))
	}
	return lines
}

// WithSealed returns the draft with the ciphertext of another snapshot wherever that
// has the same version of the same certificate, sealed to the same recipients. What
// age encrypts differs each time: without this, what is unchanged would change.
func (d Draft) WithSealed(from Snapshot) Draft {
	if !slices.Equal(d.Recipients, from.Manifest.Spec.Recipients) {
		return d
	}
	known := map[string]CertificateRef{}
	for _, ref := range from.Manifest.Spec.Certificates {
		known[ref.SealedFile()] = ref
	}
	same := map[string]bool{}
	for _, ref := range d.Certificates {
		old, ok := known[ref.SealedFile()]
		same[ref.SealedFile()] = ok && old.Version == ref.Version && old.Secret == ref.Secret
	}
	d.Files = slices.Clone(d.Files)
	for i, f := range d.Files {
		if content, there := from.File(f.Path); there && IsSealed(f.Path) && same[f.Path] {
			d.Files[i].Content = content
		}
	}
	return d
}

// Use is what a snapshot takes from a Secret.
type Use string

// The uses of Secrets. The first two are those of a [CertificateRef].
const (
	UseCertificate Use = ""      // tls.crt and tls.key
	UseCA          Use = "CA"    // the certificate authorities under ca.crt
	UseUsers       Use = "users" // the htpasswd lines under auth
	UseValue       Use = "value" // what is under any key, as one word
)

// ErrNoCompanions is returned by a store that cannot keep private content beside a
// snapshot.
var ErrNoCompanions = errors.New("certificates cannot be kept beside the snapshot in this store")

// Companion is a certificate that is kept beside a snapshot: private content, which is
// no part of it, for a reference of [ModeCompanion].
type Companion struct {
	Version string
	Content Private // PEM, the chain and then the key
}

// hidden is written where private content was.
const hidden = "(hidden)"

// Private is content that does not show when something that holds it is printed.
type Private []byte

// String returns nothing of the content.
func (Private) String() string { return hidden }

// Format writes nothing of the content, whatever the verb.
func (Private) Format(s fmt.State, _ rune) { fmt.Fprint(s, hidden) }

// MarshalText writes nothing of the content.
func (Private) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// checkCompanions checks that the companions are those that the references name, each
// what its version says.
func checkCompanions(refs []CertificateRef, companions []Companion) error {
	named := map[string]bool{}
	for _, ref := range refs {
		if ref.Mode == ModeCompanion && ref.Version != "" {
			named[ref.Version] = false
		}
	}
	for _, c := range companions {
		there, ok := named[c.Version]
		if version, err := pem.Version(c.Content); !ok || there || err != nil || version != c.Version {
			return fmt.Errorf("companion of version %q belongs to no certificate", c.Version)
		}
		named[c.Version] = true
	}
	for _, ref := range refs {
		if there, ok := named[ref.Version]; ok && !there {
			return fmt.Errorf("certificate %s has no companion", ref.File)
		}
	}
	return nil
}
