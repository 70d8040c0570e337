package configmapstore

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// The labels of a store's ConfigMaps.
const (
	nameLabel     = "hapsnap.dev/snapshots" // the name of the store
	partLabel     = "hapsnap.dev/part"      // manifest, chunk or channel
	stateLabel    = "hapsnap.dev/state"     // of a manifest: staged, complete or delivered; of a chunk: delivered or none
	snapshotLabel = "hapsnap.dev/snapshot"  // of a manifest or chunk: r000123-9f3ac01b2d
	// digestAnnotation holds the whole digest of a manifest's snapshot.
	digestAnnotation = "hapsnap.dev/digest"
)

const (
	partManifest, partChunk, partChannel = "manifest", "chunk", "channel"
	stateStaged, stateComplete           = "staged", "complete"
)

// The keys in a store's ConfigMaps.
const (
	manifestKey   = snapshots.ManifestFile
	manifestGzKey = snapshots.ManifestFile + ".gz" // replaces the manifest if that is too large
	chunksKey     = "chunks"                       // the names of the chunks, a line each, in order
	pieceKey      = "files.tar.gz"
	// manifestChunksKey has the names of the chunks with the compressed manifest, if that is too large too. These
	// come after the other chunks, and have their piece under manifestGzKey.
	manifestChunksKey = "manifestChunks"
)

// keep are the annotations that make Argo CD and Flux leave objects alone that are in no repository of
// theirs.
var keep = map[string]string{
	"argocd.argoproj.io/compare-options": "IgnoreExtraneous",
	"argocd.argoproj.io/sync-options":    "Prune=false",
	"kustomize.toolkit.fluxcd.io/prune":  "disabled",
}

// manifestName returns the name of the ConfigMap of a revision.
func manifestName(store string, revision uint64) string {
	return fmt.Sprintf("%s-r%06d", store, revision)
}

func chunkName(store string, revision uint64, attempt string, n int) string {
	return fmt.Sprintf("%s-%s-%03d", manifestName(store, revision), attempt, n)
}

// ChannelName returns the name of the ConfigMap with the channel of a store.
func ChannelName(store string) string { return store + "-channel" }

// draft has the ConfigMaps of a snapshot that is not stored yet.
type draft struct {
	manifest *corev1.ConfigMap
	chunks   []*corev1.ConfigMap // without their owner, which has no UID yet
}

// newDraft returns the ConfigMaps of a packed snapshot. The attempt distinguishes chunks of the same
// revision by two writers.
func newDraft(store string, s snapshots.Snapshot, p packed, attempt string) draft {
	id := s.ID()
	var d draft
	chunksOf := func(pieces [][]byte, key string) string {
		var names strings.Builder
		for _, piece := range pieces {
			o := part(store, chunkName(store, id.Revision, attempt, len(d.chunks)), partChunk)
			o.Labels[snapshotLabel] = id.String()
			o.BinaryData = map[string][]byte{key: piece}
			o.Immutable = new(true)
			d.chunks = append(d.chunks, o)
			names.WriteString(o.Name + "\n")
		}
		return names.String()
	}
	d.manifest = part(store, manifestName(store, id.Revision), partManifest)
	d.manifest.Labels[snapshotLabel] = id.String()
	d.manifest.Labels[stateLabel] = stateStaged
	d.manifest.Annotations[digestAnnotation] = string(s.Manifest.Spec.Digest)
	d.manifest.Data = map[string]string{chunksKey: chunksOf(p.pieces, pieceKey)}
	switch len(p.manifestGz) {
	case 0:
		d.manifest.Data[manifestKey] = string(p.manifest)
	case 1:
		d.manifest.BinaryData = map[string][]byte{manifestGzKey: p.manifestGz[0]}
	default:
		d.manifest.Data[manifestChunksKey] = chunksOf(p.manifestGz, manifestGzKey)
	}
	d.manifest.Immutable = new(true)
	return d
}

func part(store, name, kind string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{nameLabel: store, partLabel: kind}, Annotations: maps.Clone(keep),
	}}
}

// ownedBy makes the API server delete a chunk when its manifest is deleted.
func ownedBy(chunk *corev1.ConfigMap, manifest string, uid types.UID) *corev1.ConfigMap {
	chunk.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: manifest, UID: uid}}
	return chunk
}

// newChannel returns the ConfigMap of a channel.
func newChannel(store string, fields map[string]string) *corev1.ConfigMap {
	o := part(store, ChannelName(store), partChannel)
	o.Data = maps.Clone(fields)
	o.Annotations[journalledAnnotation] = journalled(o)
	return o
}

const (
	// maxPiece is how much of a snapshot is in one ConfigMap, which holds 1 MiB with its names.
	maxPiece = 900 << 10
	// maxPieces limits a snapshot to 28 MiB, compressed: etcd holds 2 GiB of everything by default, and
	// a history is many snapshots.
	maxPieces = 32
	// maxManifest limits a compressed manifest. Names that are made up hardly compress, and get a little longer.
	maxManifest = snapshots.MaxManifest + snapshots.MaxManifest/100
	// maxRatio is how many bytes a byte of the archive may expand to, where the result exceeds
	// smallArchive. gzip gets to a thousand with one byte that is repeated, and to 41 with the
	// configuration of 10,000 Ingresses with four options each, whose sections are all alike. The ratio
	// of an archive that takes little memory does not matter.
	maxRatio     = 16
	smallArchive = 64 << 20
)

// packed is a snapshot as it is put into ConfigMaps.
type packed struct {
	manifest   []byte
	manifestGz [][]byte // pieces of it, compressed, if it is too large for a ConfigMap
	pieces     [][]byte // of the tar.gz with the files
}

// pack packs a snapshot. The same snapshot always gives the same bytes. A snapshot that is too large is
// refused, and the error names its largest files. Nothing of it is remembered then.
func (c *compressor) pack(s snapshots.Snapshot) (packed, error) {
	p, err := c.packInto(s, maxPiece)
	c.forget()
	if err != nil {
		c.forget()
	}
	return p, err
}

// packInto packs into pieces of at most so many bytes, all of about the same size.
func (c *compressor) packInto(s snapshots.Snapshot, piece int) (packed, error) {
	manifest, err := s.Manifest.Marshal()
	if err != nil {
		return packed{}, fmt.Errorf("encode manifest: %w", err)
	}
	archive, err := c.tarGz(s.Files)
	if err != nil {
		return packed{}, fmt.Errorf("compress files: %w", err)
	}
	p := packed{manifest: manifest, pieces: divided(archive, piece)}
	if len(manifest) > piece {
		whole, err := c.compress(manifest)
		if err != nil {
			return packed{}, fmt.Errorf("compress manifest: %w", err)
		}
		p.manifestGz = divided(whole, piece)
	}
	if len(archive) > maxPieces*maxPiece {
		return packed{}, tooLarge(s, len(archive))
	}
	if _, err := unpackedSize(s.Manifest.Spec.Files, len(archive)); err != nil { // it would not be read
		return packed{}, fmt.Errorf("%w: %w", sequence.ErrRefused, err)
	}
	return p, nil
}

// divided divides data into pieces of at most so many bytes, all of about the same size.
func divided(data []byte, piece int) [][]byte {
	n := max(1, (len(data)+piece-1)/piece)
	return slices.Collect(slices.Chunk(data, (len(data)+n-1)/n))
}

func tooLarge(s snapshots.Snapshot, size int) error {
	return process.WithHint(
		fmt.Errorf("%w: it has %d bytes, compressed, and a snapshot in ConfigMaps may have %d; the largest files: %s",
			sequence.ErrRefused, size, maxPieces*maxPiece, snapshots.Largest(s.Files)),
		"publish it to a git store")
}

// unpackManifest returns snapshot.yaml from the pieces of it, compressed.
func unpackManifest(pieces [][]byte) ([]byte, error) {
	var readers []io.Reader
	for _, piece := range pieces {
		readers = append(readers, bytes.NewReader(piece))
	}
	z, err := gzip.NewReader(io.MultiReader(readers...))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", snapshots.ErrCorrupt, manifestKey, err)
	}
	content, err := io.ReadAll(io.LimitReader(z, snapshots.MaxManifest+1)) // one more is too large
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", snapshots.ErrCorrupt, manifestKey, err)
	}
	return content, nil
}

// unpackFiles reads the files that a manifest lists from the pieces. It reads no more of a file than
// the manifest says; callers verify the digests. It refuses pieces that would take much more memory
// than they are large, before it unpacks them.
func unpackFiles(manifest snapshots.Manifest, pieces [][]byte) ([]snapshots.File, error) {
	var readers []io.Reader
	packed := 0
	for _, piece := range pieces {
		readers = append(readers, bytes.NewReader(piece))
		packed += len(piece)
	}
	size, err := unpackedSize(manifest.Spec.Files, packed)
	if err != nil {
		return nil, fmt.Errorf("%w: chunks: %w", snapshots.ErrCorrupt, err)
	}
	z, err := gzip.NewReader(io.MultiReader(readers...))
	if err != nil {
		return nil, fmt.Errorf("%w: chunks: %w", snapshots.ErrCorrupt, err)
	}
	t := tar.NewReader(io.LimitReader(z, size))
	var files []snapshots.File
	for _, listed := range manifest.Spec.Files {
		f, err := unpackFile(t, listed)
		if err != nil {
			return nil, fmt.Errorf("%w: chunks: %w", snapshots.ErrCorrupt, err)
		}
		files = append(files, f)
	}
	if _, err := t.Next(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: chunks: there is more than the manifest lists", snapshots.ErrCorrupt)
	}
	// The checksum of gzip comes after the last of tar.
	if _, err := io.Copy(io.Discard, io.LimitReader(z, maxPiece)); err != nil {
		return nil, fmt.Errorf("%w: chunks: %w", snapshots.ErrCorrupt, err)
	}
	return files, nil
}

// unpackedSize returns how many bytes these files have unpacked, with what tar adds.
func unpackedSize(files []snapshots.FileDigest, packed int) (int64, error) {
	if err := snapshots.CheckSizes(files); err != nil {
		return 0, err
	}
	const block = 512
	var size, all int64
	for _, f := range files {
		size += f.Size
		all += 4*block + (f.Size+block-1)/block*block // a long name takes two blocks more
	}
	if size > max(smallArchive, maxRatio*int64(packed)) {
		return 0, fmt.Errorf("the files have %d bytes, and %d bytes that were packed may stand for %d", size, packed, max(smallArchive, maxRatio*int64(packed)))
	}
	return all + 2*block, nil
}

func unpackFile(t *tar.Reader, listed snapshots.FileDigest) (snapshots.File, error) {
	header, err := t.Next()
	if err != nil {
		return snapshots.File{}, fmt.Errorf("%s: %w", listed.Path, err)
	}
	if header.Name != listed.Path || header.Size != listed.Size {
		return snapshots.File{}, fmt.Errorf("%s of %d bytes is where %s of %d should be", header.Name, header.Size, listed.Path, listed.Size)
	}
	content, err := io.ReadAll(t)
	return snapshots.File{Path: listed.Path, Content: content}, err
}
