package snapshots

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/internal/printable"
)

// The paths of files that have a meaning of their own in a snapshot. Maps are
// in maps/, other files in files/. Certificates are named in certs/ but never
// stored there in the clear.
const (
	ManifestFile  = "snapshot.yaml"
	ConfigFile    = "haproxy.cfg"
	EndpointsFile = "endpoints.yaml"
)

// The errors of reading a snapshot. ErrNotFound means that the store, read in
// full, does not hold it; ErrCorrupt that it holds something else under that
// name. Neither is ever a reason to change what runs.
var (
	ErrNotFound = errors.New("snapshot not found")
	ErrCorrupt  = errors.New("snapshot is corrupt")
)

// ErrUntrusted means that what a store holds, a snapshot or the channel, is not
// signed by anybody who is allowed to, where signatures are asked for. What runs is
// held.
var ErrUntrusted = errors.New("not signed by an allowed signer")

// ErrMoved means that a draft was made to follow a snapshot which is not the
// newest of the store, or not any more. Nothing was written.
var ErrMoved = errors.New("the store's newest snapshot is another one")

// File is one file of a snapshot. Path is relative and slash-separated.
type File struct {
	Path    string
	Content []byte
}

// Snapshot is a validated artifact with its manifest. It is a value: whoever
// holds one must not change its files.
type Snapshot struct {
	Manifest Manifest
	Files    []File // sorted by path
}

// ID returns the snapshot's name.
func (s Snapshot) ID() ID { return NewID(s.Manifest.Spec.Revision, s.Manifest.Spec.Digest) }

// Sealed reports whether the snapshot has a revision and a digest, see [Draft.Seal].
func (s Snapshot) Sealed() bool {
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
	// Recipients are those of age's that certificates are sealed to, sorted; none if
	// no certificate is.
	Recipients []string
	// Companions are the certificates to keep beside the snapshot.
	Companions  []Companion
	Quarantined []Quarantined
	Provenance  Provenance
	// Time is when the draft was validated. Stores use it for the times of
	// commits and files; it takes no part in the digest.
	Time time.Time
	// Subject says in a few words what changed since the parent, such as
	// "+2 backends, ~1 route (Ingress shop/web)".
	Subject string
	// After is the newest snapshot as the writer saw it, zero for an empty store;
	// nil is whichever it is. A store whose newest is another one refuses the
	// draft with [ErrMoved], so that a writer who was held up cannot put what is
	// old on top of what is new.
	After *ID
}

// Digest returns the content digest of the draft.
func (d Draft) Digest() Digest {
	return ContentDigest(fileDigests(d.Files), d.Certificates, d.Recipients)
}

// Seal gives the draft its revision and its parent, which is zero for the
// first snapshot of a store. The files are sorted, and the manifest lists them.
func (d Draft) Seal(revision uint64, parent ID) Snapshot {
	files := slices.SortedFunc(slices.Values(d.Files), func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	refs := slices.SortedFunc(slices.Values(d.Certificates), CertificateRef.compare)
	digest := d.Digest()
	m := Manifest{APIVersion: APIVersion, Kind: ManifestKind}
	m.Metadata.Name = NewID(revision, digest).String()
	m.Spec = Spec{
		Revision: revision, Digest: digest, Parent: parent, Subject: printable.Text(d.Subject),
		Files: fileDigests(files), Certificates: refs, Recipients: d.Recipients, Quarantined: printableReasons(d.Quarantined),
	}
	m.Provenance = d.Provenance
	m.Provenance.Trigger, m.Provenance.Author = printable.Text(d.Provenance.Trigger), printable.Text(d.Provenance.Author)
	m.Provenance.Time = d.Time.UTC().Truncate(time.Second)
	return Snapshot{Manifest: m, Files: files}
}

// printableReasons returns what was left out with texts that can be shown: whoever wrote
// the objects chose the words.
func printableReasons(list []Quarantined) []Quarantined {
	out := slices.Clone(list)
	for i, q := range out {
		out[i] = Quarantined{
			Kind: printable.Text(q.Kind), Namespace: printable.Text(q.Namespace), Name: printable.Text(q.Name), Reason: printable.Text(q.Reason),
		}
	}
	return out
}

// Verify checks that the files are exactly those of the manifest and that the
// manifest's digest is theirs; the error wraps [ErrCorrupt] and names the file.
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

// ContentDigest hashes the sorted (path, sha256) of all files and the
// certificate references by Secret name and use. What the compiler saw in a Secret is
// outside, so that a renewed certificate makes no new snapshot, unless the reference
// is to a version. The files of sealed certificates are outside too: their versions
// and recipients stand for them, for age encrypts the same to other bytes each time.
func ContentDigest(files []FileDigest, certificates []CertificateRef, recipients []string) Digest {
	lines := certificateLines(certificates, recipients)
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
