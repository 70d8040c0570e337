// Package snapshots is the contract between the compiler and the pusher: the artifact, its
// manifest, its ID and digest, and how it is verified.
//
// Start at [Snapshot]: a list of files and a [Manifest]. The compiler makes a [Draft]. The
// store that publishes it gives it the revision after its newest snapshot ([Draft.Number]).
// The compiler also numbers drafts that it only checks or shows. The pusher reads the
// snapshot back and calls [Snapshot.Verify]. The package promises that a snapshot is read
// whole and verified or not at all, and that its digest depends on nothing but its content.
//
// The packages below work with snapshots:
//
//   - channel decides which snapshot should run, and which ones a store keeps;
//   - bind joins a snapshot with live data, for one HAProxy instance;
//   - request leads a request through the rules and maps of a snapshot;
//   - routetable lists what a snapshot routes;
//   - difference compares two snapshots, for people;
//   - live reads live data from EndpointSlices and Secrets;
//   - dirstore, gitstore and configmapstore are the stores. The contract suite in storetest
//     tests all of them, and stores opens one by its URL.
package snapshots

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/printable"
)

// The paths of files with a special meaning. Maps are in maps/, other files in files/. A
// path in certs/ names a certificate, which is never stored there unencrypted.
const (
	ManifestFile  = "snapshot.yaml"
	ConfigFile    = "haproxy.cfg"
	EndpointsFile = "endpoints.yaml"
)

// The errors of reading a snapshot. ErrNotFound means that the store was read completely
// and does not hold it. ErrCorrupt means that the store holds something else under that
// name. Neither is ever a reason to change what runs.
var (
	ErrNotFound = errors.New("snapshot not found")
	ErrCorrupt  = errors.New("snapshot is corrupt")
)

// ErrUntrusted means that signatures are required, and that no accepted key has signed the
// snapshot or the channel. The pusher then keeps what runs.
var ErrUntrusted = errors.New("not signed by an allowed signer")

// ErrMoved means that the newest snapshot of the store is not the one that the draft follows. Nothing was
// written.
var ErrMoved = errors.New("the store's newest snapshot is another one")

// File is one file of a snapshot. Path is relative and slash-separated.
type File struct {
	Path    string
	Content []byte
}

// Snapshot is a validated artifact with its manifest. It is a value: its files must not change.
type Snapshot struct {
	Manifest Manifest
	Files    []File // sorted by path
}

// ID returns the snapshot's name.
func (s Snapshot) ID() ID { return NewID(s.Manifest.Spec.Revision, s.Manifest.Spec.Digest) }

// Numbered reports whether the snapshot has a revision and a digest, see [Draft.Number].
func (s Snapshot) Numbered() bool {
	return s.ID().Revision > 0 && len(s.Manifest.Spec.Digest.Short()) == shortDigest
}

// File returns the content of the file at path, and whether there is one.
func (s Snapshot) File(path string) ([]byte, bool) {
	i, ok := slices.BinarySearchFunc(s.Files, path, func(f File, p string) int { return cmp.Compare(f.Path, p) })
	if !ok {
		return nil, false
	}
	return s.Files[i].Content, true
}

// Config returns the content of haproxy.cfg.
func (s Snapshot) Config() []byte {
	config, _ := s.File(ConfigFile)
	return config
}

// Draft is a validated artifact that a store has not numbered yet.
type Draft struct {
	Files        []File
	Certificates []CertificateRef
	// Recipients are the age recipients that certificates are sealed to, sorted. There are
	// none if no certificate is sealed.
	Recipients []string
	// Companions are the certificates to keep beside the snapshot.
	Companions  []Companion
	Quarantined []Quarantined
	Provenance  Provenance
	// Time is when the draft was validated. Stores use it for the times of commits and
	// files. It is not part of the digest.
	Time time.Time
	// Subject summarises what changed since the parent, such as "+2 backends, ~1 route
	// (Ingress shop/web)".
	Subject string
	// After is the newest snapshot that the writer saw, zero for an empty store. With nil
	// the draft may follow any snapshot. A store with another newest snapshot refuses the
	// draft with [ErrMoved], so that a delayed writer cannot publish old content after new
	// content.
	After *ID
}

// Digest returns the content digest of the draft.
func (d Draft) Digest() Digest {
	return ContentDigest(fileDigests(d.Files), d.Certificates, d.Recipients)
}

// Number gives the draft its revision and its parent, which is zero for the first snapshot of
// a store. It sorts the files and lists them in the manifest.
func (d Draft) Number(revision uint64, parent ID) Snapshot {
	files := slices.SortedFunc(slices.Values(d.Files), func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	refs := slices.SortedFunc(slices.Values(d.Certificates), CertificateRef.compare)
	digest := d.Digest()
	m := Manifest{APIVersion: APIVersion, Kind: ManifestKind}
	m.Metadata.Name = NewID(revision, digest).String()
	// The authors of objects chose the words of these.
	quarantined := slices.Clone(d.Quarantined)
	for i, q := range quarantined {
		quarantined[i] = Quarantined{
			Kind: printable.Text(q.Kind), Namespace: printable.Text(q.Namespace), Name: printable.Text(q.Name), Reason: printable.Text(q.Reason),
		}
	}
	m.Spec = Spec{
		Revision: revision, Digest: digest, Parent: parent, Subject: printable.Text(d.Subject),
		Files: fileDigests(files), Certificates: refs, Recipients: d.Recipients, Quarantined: quarantined,
	}
	m.Provenance = d.Provenance
	m.Provenance.Trigger, m.Provenance.Author = printable.Text(d.Provenance.Trigger), printable.Text(d.Provenance.Author)
	m.Provenance.Time = d.Time.UTC().Truncate(time.Second)
	m.omitInputs()
	return Snapshot{Manifest: m, Files: files}
}

// Verify checks that the files are exactly those of the manifest, and that they have the
// manifest's digest. Errors wrap [ErrCorrupt] and name the file.
func (s Snapshot) Verify() error {
	want, got := s.Manifest.Spec.Files, fileDigests(s.Files)
	for i := range max(len(want), len(got)) {
		if i >= len(got) || (i < len(want) && want[i].Path < got[i].Path) {
			return fmt.Errorf("%w: %s is missing", ErrCorrupt, want[i].Path)
		}
		if i >= len(want) || want[i].Path > got[i].Path {
			return fmt.Errorf("%w: %s is not in the manifest", ErrCorrupt, got[i].Path)
		}
		if want[i] != got[i] {
			return fmt.Errorf("%w: %s has sha256 %s, not %s", ErrCorrupt, got[i].Path, got[i].SHA256, want[i].SHA256)
		}
	}
	if err := checkSealed(s.Files, s.Manifest.Spec.Certificates, s.Manifest.Spec.Recipients); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	digest := ContentDigest(got, s.Manifest.Spec.Certificates, s.Manifest.Spec.Recipients)
	if digest != s.Manifest.Spec.Digest {
		return fmt.Errorf("%w: content is %s, the manifest says %s", ErrCorrupt, digest, s.Manifest.Spec.Digest)
	}
	if s.ID().IsZero() || s.Manifest.Metadata.Name != s.ID().String() {
		return fmt.Errorf("%w: named %q, but is %s", ErrCorrupt, s.Manifest.Metadata.Name, s.ID())
	}
	return nil
}

// ContentDigest hashes the sorted (path, sha256) of all files, and the certificate
// references by Secret name and use. It leaves out what the compiler saw in a Secret, so
// that a renewed certificate makes no new snapshot unless the reference is to a version. It
// also leaves out the files of sealed certificates, since age encrypts to other bytes each
// time. It hashes their versions and recipients instead.
func ContentDigest(files []FileDigest, certificates []CertificateRef, recipients []string) Digest {
	var lines []string
	for _, c := range certificates {
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
	for _, f := range files {
		if !IsSealed(f.Path) {
			lines = append(lines, fmt.Sprintf("file %q %s\n", f.Path, f.SHA256))
		}
	}
	slices.Sort(lines)
	h := sha256.New()
	for _, line := range lines {
		h.Write([]byte(line))
	}
	return DigestOf(h)
}

// fileDigests lists the files in the order given.
func fileDigests(files []File) []FileDigest {
	out := make([]FileDigest, len(files))
	for i, f := range files {
		sum := sha256.Sum256(f.Content)
		out[i] = FileDigest{Path: f.Path, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(f.Content))}
	}
	return out
}

// digestPrefix names the hash of a Digest, as OCI digests do.
const digestPrefix = "sha256:"

// shortDigest is how many hexadecimal digits of the digest an ID carries.
const shortDigest = 10

// Digest is the content digest of a snapshot: "sha256:" and 64 lower-case
// hexadecimal digits. The zero value is no digest.
type Digest string

// DigestOf returns the digest of the bytes written to a SHA-256.
func DigestOf(h hash.Hash) Digest { return Digest(digestPrefix + hex.EncodeToString(h.Sum(nil))) }

// Short returns the first ten hexadecimal digits, as they stand in an [ID].
func (d Digest) Short() string {
	hex := strings.TrimPrefix(string(d), digestPrefix)
	return hex[:min(len(hex), shortDigest)]
}

// Valid reports whether d has the form of a digest.
func (d Digest) Valid() bool {
	hex, ok := strings.CutPrefix(string(d), digestPrefix)
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

// ID names one snapshot of one store: a revision number, which gives the
// order, and the first digits of the content digest. The zero value names no
// snapshot. An ID is comparable and may be a map key.
type ID struct {
	Revision uint64
	Short    string
}

// MaxRevision is the largest revision that a JSON number holds exactly. A larger number is
// not a valid name, so that every revision that can be read has a successor.
const MaxRevision = 1<<53 - 1

// ErrBadID is returned for a text that is not the name of a snapshot.
var ErrBadID = errors.New("not a snapshot id such as r000123-9f3ac01b2d")

// NewID names the content d at the given revision.
func NewID(revision uint64, d Digest) ID {
	return ID{Revision: revision, Short: d.Short()}
}

// ParseID reads what [ID.String] wrote, or returns [ErrBadID].
func ParseID(s string) (ID, error) {
	number, short, ok := strings.Cut(strings.TrimPrefix(s, "r"), "-")
	revision, err := strconv.ParseUint(number, 10, 64)
	id := ID{Revision: revision, Short: short}
	if !ok || err != nil || revision == 0 || revision > MaxRevision || len(short) != shortDigest || id.String() != s {
		return ID{}, fmt.Errorf("%q: %w", s, ErrBadID)
	}
	if strings.Trim(short, "0123456789abcdef") != "" {
		return ID{}, fmt.Errorf("%q: %w", s, ErrBadID)
	}
	return id, nil
}

// Newest is the word for the newest snapshot on a command line.
const Newest = "head"

// FindID returns the snapshot that a person names: by its ID, by its revision, such as r12,
// or as [Newest]. The ids ascend.
func FindID(ids []ID, name string) (ID, bool) {
	if name == Newest {
		if len(ids) == 0 {
			return ID{}, false
		}
		return ids[len(ids)-1], true
	}
	if id, err := ParseID(name); err == nil {
		return id, slices.Contains(ids, id)
	}
	revision, err := strconv.ParseUint(strings.TrimPrefix(name, "r"), 10, 64)
	i := slices.IndexFunc(ids, func(id ID) bool { return id.Revision == revision })
	if err != nil || i < 0 {
		return ID{}, false
	}
	return ids[i], true
}

// IsName reports whether a text has a form by which [FindID] finds snapshots.
func IsName(text string) bool {
	if _, err := ParseID(text); err == nil || text == Newest {
		return true
	}
	digits := strings.TrimPrefix(text, "r")
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// String returns the name, such as "r000123-9f3ac01b2d", or "" for the zero ID.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	return fmt.Sprintf("r%06d-%s", id.Revision, id.Short)
}

// IsZero reports whether id names no snapshot.
func (id ID) IsZero() bool { return id == ID{} }

// Compare orders IDs by revision, then by digest.
func (id ID) Compare(other ID) int {
	return cmp.Or(cmp.Compare(id.Revision, other.Revision), cmp.Compare(id.Short, other.Short))
}

// Names reports whether id is a name of the content with digest d.
func (id ID) Names(d Digest) bool { return !id.IsZero() && id.Short == d.Short() }

// MarshalText implements [encoding.TextMarshaler].
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]; the empty text is the zero ID.
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = ID{}
		return nil
	}
	parsed, err := ParseID(string(text))
	*id = parsed
	return err
}

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
